//! A team's broker of its own, on a file or on a database, with the operator's verbs and door.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::broker_process::BrokerProcess;
use super::servers::Postgres;
use super::{Home, Ran, text_of};

/// A broker of its own, on a file or on a database.
pub struct Team {
    pub house: Home,
    pub database: Option<Postgres>,
    pub broker: BrokerProcess,
}

impl Team {
    pub fn on(database: Option<Postgres>) -> Self {
        let house = Home::new();
        let data = house.path().parent().unwrap().join("broker");
        let url = database.as_ref().map(Postgres::url);
        let more: Vec<&str> = url.iter().flat_map(|url| ["--database", url]).collect();
        let broker = BrokerProcess::start(&house, &data, "127.0.0.1:0", &more);
        Self {
            house,
            database,
            broker,
        }
    }

    pub fn both() -> [Self; 2] {
        [Self::on(None), Self::on(Some(Postgres::start()))]
    }

    pub fn url(&self) -> String {
        format!("ws://{}/", self.broker.listen())
    }

    /// `heddle --mesh MESH broker VERB …` at the tables.
    pub fn cli(&self, mesh: &str, verb: &[&str]) -> Ran {
        let (url, folder) = (self.url(), self.broker.data.to_str().unwrap().to_owned());
        let mut args = vec!["--json", "--mesh", mesh, "broker"];
        args.extend(verb);
        let database = self.database.as_ref().map(Postgres::url);
        match &database {
            Some(database) => args.extend(["--database", database.as_str()]),
            None => args.extend(["--data", folder.as_str()]),
        }
        if verb[0] == "invite" && database.is_some() {
            args.extend(["--url", url.as_str()]);
        }
        self.house.cli(&args)
    }

    pub fn admin(&self) -> String {
        text_of(&self.broker.data.join("admin_token"))
            .trim()
            .to_owned()
    }

    /// A POST to the broker's own door: status and body.
    pub fn post(&self, path: &str, head: &[(&str, &str)], body: &Value) -> (u16, Value) {
        post_to(&self.broker, path, head, body)
    }

    /// Killed, and up again on the same address and tables.
    pub fn killed(self) -> Self {
        let Self {
            house,
            database,
            broker,
        } = self;
        let (listen, data) = (broker.listen(), broker.data.clone());
        broker.kill();
        let url = database.as_ref().map(Postgres::url);
        let more: Vec<&str> = url.iter().flat_map(|url| ["--database", url]).collect();
        let broker = BrokerProcess::start(&house, &data, &listen, &more);
        Self {
            house,
            database,
            broker,
        }
    }
}

/// A POST to a broker's own door: status and body.
pub fn post_to(
    broker: &BrokerProcess,
    path: &str,
    head: &[(&str, &str)],
    body: &Value,
) -> (u16, Value) {
    let mut stream = TcpStream::connect(broker.listen()).unwrap();
    let body = body.to_string();
    let head: String = head.iter().map(|(k, v)| format!("{k}: {v}\r\n")).collect();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{head}\r\n{body}",
        broker.listen(),
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(body).unwrap_or(Value::Null))
}

pub fn link_of(answer: &Value) -> &str {
    answer["link"].as_str().unwrap()
}
