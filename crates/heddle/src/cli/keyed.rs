//! `--id` of verbs whose calls are no messages and no data: the key under which the same call again gets the first answer.

use clap::Args as ClapArgs;

#[derive(Debug, Clone, Default, ClapArgs)]
pub struct Keyed {
    /// The idempotency key: the same key and request again get the first answer, another request is refused
    #[arg(id = "idempotency_key", long = "id", value_name = "KEY")]
    pub key: Option<String>,
}
