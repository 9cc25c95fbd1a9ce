//! The doors: HTTP and its lane, the CLI's words, log, metrics, hooks, MCP, the twin of the fingerprint. Over the real binary; one program for the whole suite, because each one that is linked takes its time.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod cli;
mod door;
mod door_routes;
mod held_files;
mod hints;
mod hooks;
mod hooks_limits;
mod hooks_tokens;
mod keyed;
mod lane;
mod log;
mod mcp;
mod metrics;
mod pre_send;
mod slips;
mod status;
mod twin;
mod words;
