//! Append 4 KiB and sync the data: what the disk itself can do.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::error::Outcome;
use crate::load::{Load, repeat};

const BLOCK_BYTES: usize = 4096;

pub async fn round(path: &Path, seconds: f64) -> Outcome<Load> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut file = File::create(&path)?;
        let block = [b'x'; BLOCK_BYTES];
        let load = repeat(seconds, || {
            file.write_all(&block)?;
            Ok(file.sync_data()?)
        })?;
        drop(file);
        std::fs::remove_file(&path)?;
        Ok(load)
    })
    .await?
}
