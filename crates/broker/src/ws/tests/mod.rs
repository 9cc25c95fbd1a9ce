//! The door, over an in-memory pipe with a real WebSocket client.

mod client;
mod delivery;
mod ending;
mod greeting;
mod hostile;
mod house;
mod log;
mod membership;
mod others;
mod presence;
mod requests;
mod sending;
mod work;
