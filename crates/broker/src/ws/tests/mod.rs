//! The door, over an in-memory pipe with a real WebSocket client.

mod blobs;
mod client;
mod delivery;
mod effects;
mod ending;
mod frames;
mod greeting;
mod hostile;
mod house;
mod log;
mod marks;
mod membership;
mod others;
mod presence;
mod reconnects;
mod requests;
mod sending;
mod standing;
mod threats;
mod work;
