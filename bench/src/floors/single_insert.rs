//! One insert per FULL transaction, from one thread: the floor of P2 and, by its p50, of P3 and P10.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::outbox_table::{NewRow, open};
use crate::error::Outcome;
use crate::load::{Latencies, Load, repeat};

pub struct SingleInsert {
    connection: Connection,
    payload: Vec<u8>,
}

impl SingleInsert {
    pub fn open(path: &Path, payload_bytes: usize) -> Outcome<Self> {
        Ok(Self {
            connection: open(path)?,
            payload: vec![b'x'; payload_bytes],
        })
    }

    pub async fn round(self, seconds: f64) -> Outcome<(Self, Load)> {
        tokio::task::spawn_blocking(move || {
            let load = repeat(seconds, || {
                NewRow::next().insert(&self.connection, &self.payload)
            })?;
            Ok((self, load))
        })
        .await?
    }

    /// The same from rest, as a lone message finds the disk and the processors.
    pub async fn paced(self, seconds: f64, pause: Duration) -> Outcome<(Self, Latencies)> {
        tokio::task::spawn_blocking(move || {
            let mut latencies = Latencies::new()?;
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < seconds {
                std::thread::sleep(pause);
                let asked = Instant::now();
                NewRow::next().insert(&self.connection, &self.payload)?;
                latencies.note(asked.elapsed());
            }
            Ok((self, latencies))
        })
        .await?
    }
}
