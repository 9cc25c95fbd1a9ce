//! Who else could reach the tables (T-32): looked at when the database is opened, and told. Nothing is refused for it: whoever runs the
//! server may protect it in a way that nobody sees from here.

use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config};

/// As the server says of itself and of this connection.
const ASK: &str = "SELECT current_setting('is_superuser') = 'on', current_setting('listen_addresses'), \
    coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)";

const SUPERUSER: &str = "the broker is a superuser of the database, and so is whoever gets hold of its password. Give it a \
    role of its own that owns the database and nothing else (CREATE ROLE heddle LOGIN PASSWORD '…'; ALTER DATABASE … OWNER TO heddle; and in \
    that database, for the tables that are there already: ALTER SCHEMA mesh OWNER TO heddle; ALTER SCHEMA mesh_effects OWNER TO \
    heddle; and ALTER TABLE … OWNER TO heddle for each table in them)";
const NO_PASSWORD: &str = "the database lets this broker in without a password, and so it does whoever reaches its port: ask for \
    scram-sha-256 in pg_hba.conf, and put the password into the address";
const IN_THE_CLEAR: &str = "the database listens beyond its own machine, and this broker speaks to it in the clear: use TLS, or let it \
    listen on an address that only brokers reach";

/// What is known of the way to the database. A socket of this machine has its folder for a door.
#[derive(Debug, Clone)]
struct Way {
    is_superuser: bool,
    listens_on: String,
    /// By TCP, and nobody asks for a password.
    is_open: bool,
    /// By TCP, and not encrypted.
    is_clear: bool,
}

/// What somebody should know before a team relies on this database.
pub(super) async fn of(
    client: &Client,
    config: &Config,
) -> Result<Vec<&'static str>, tokio_postgres::Error> {
    let row = client.query_one(ASK, &[]).await?;
    let is_socket = |host: &Host| matches!(host, Host::Unix(_));
    let by_tcp = config.get_hosts().is_empty() || !config.get_hosts().iter().all(is_socket);
    let is_encrypted: bool = row.try_get(2)?;
    Ok(said(&Way {
        is_superuser: row.try_get(0)?,
        listens_on: row.try_get(1)?,
        is_open: by_tcp && config.get_password().is_none(),
        is_clear: by_tcp && !is_encrypted,
    }))
}

fn said(way: &Way) -> Vec<&'static str> {
    let mut said = Vec::new();
    if way.is_superuser {
        said.push(SUPERUSER);
    }
    if way.is_open {
        said.push(NO_PASSWORD);
    }
    if way.is_clear && listens_beyond(&way.listens_on) {
        said.push(IN_THE_CLEAR);
    }
    said
}

fn listens_beyond(addresses: &str) -> bool {
    let own = ["", "localhost", "127.0.0.1", "::1"];
    let mut addresses = addresses.split(',').map(str::trim);
    addresses.any(|address| !own.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_32_each_open_door_is_told_and_a_closed_one_is_not() {
        let closed = Way {
            is_superuser: false,
            listens_on: "localhost, ::1".to_owned(),
            is_open: false,
            is_clear: true,
        };
        assert!(said(&closed).is_empty());
        let changed = |change: fn(&mut Way)| {
            let mut way = closed.clone();
            change(&mut way);
            said(&way)
        };
        assert_eq!(changed(|way| way.is_superuser = true), [SUPERUSER]);
        assert_eq!(changed(|way| way.is_open = true), [NO_PASSWORD]);
        let everywhere = |way: &mut Way| way.listens_on = "*".to_owned();
        assert_eq!(changed(everywhere), [IN_THE_CLEAR]);
        let encrypted = |way: &mut Way| {
            way.listens_on = "localhost,10.0.0.7".to_owned();
            way.is_clear = false;
        };
        assert!(changed(encrypted).is_empty());
    }
}
