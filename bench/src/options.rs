//! What a run can be told on the command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Runs workloads with their floors and peers side by side, and says which goals were met.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench", version)]
pub struct Options {
    /// Which workload
    pub workload: Workload,
    /// Length of each measurement of each round
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Concurrent clients where a workload has many
    #[arg(long, default_value_t = 64)]
    pub clients: usize,
    /// Rounds; the contenders alternate within each
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Where to keep the files of the run; must be on a real disk
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// The binary to measure; the one beside this executable by default
    #[arg(long, value_name = "FILE")]
    pub heddle: Option<PathBuf>,
    /// For `cli`: the peer of P27 and P28; the installed one by default
    #[arg(long, value_name = "FILE")]
    pub hcom: Option<PathBuf>,
    /// For `compare`: the binary to hold against it
    #[arg(long, value_name = "FILE")]
    pub other: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Workload {
    /// P1 to P7: the durable accept of a message
    Accept,
    /// P8, P9 and P25: a broker on SQLite and on PostgreSQL, two of them
    Broker,
    /// P10 and P11: from a sender to another agent's inbox
    EndToEnd,
    /// P20, P27 and P28: one send per process
    Cli,
    /// P21, P24 and the cold start: offline ops to a second replica, ready tasks
    Store,
    /// P18 and P19: the nearest of 100,000 vectors
    Vectors,
    /// P13 to P17 and JN-37: the repository journal
    Journal,
    /// Two builds of the accept path, side by side; not part of `all`
    Compare,
    All,
}
