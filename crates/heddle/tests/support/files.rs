//! Shared files: bytes to share, and a look at where they lie.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Daemon, Home};

pub fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let sign = |n: u32| char::from(SIGNS[usize::try_from(n & 63).unwrap()]);
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        text.extend([sign(word >> 18), sign(word >> 12)]);
        text.push(if three.len() > 1 {
            sign(word >> 6)
        } else {
            '='
        });
        text.push(if three.len() > 2 { sign(word) } else { '=' });
    }
    text
}

/// Bytes that no compression or accident makes.
pub fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

pub fn share(daemon: &Daemon, path: &str, bytes: &[u8]) -> Value {
    let body = json!({"path": path, "content_base64": base64(bytes)});
    daemon.http.post("/v1/file/share", &body).expect(200)
}

pub fn blob_files(home: &Home) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(home.path().join("blobs")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            found.push(file.unwrap().path());
        }
    }
    found
}
