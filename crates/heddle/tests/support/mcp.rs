//! An MCP client of another language: the official Python SDK, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::Home;

pub struct McpClient {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// The server's answer to `initialize`.
    pub hello: Value,
}

/// The interpreter that has the SDK. `scripts/test` provides it; a test that cannot run is a failure.
fn python() -> PathBuf {
    let path = std::env::var_os("HEDDLE_TEST_MCP_PYTHON")
        .expect("HEDDLE_TEST_MCP_PYTHON is not set: run the tests with ./scripts/test");
    PathBuf::from(path)
}

impl McpClient {
    /// `name` is what the client calls itself; `folder` is where its server works.
    pub fn start(home: &Home, name: &str, folder: &Path, options: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/mcp_client.py");
        let mut child = Command::new(python())
            .arg(script)
            .arg(name)
            .arg(folder)
            .arg(super::BINARY)
            .arg("mcp")
            .args(options)
            .env_clear()
            .env("HEDDLE_HOME", home.path())
            .env("USER", "tester")
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let hello = Value::Null;
        let mut client = Self {
            child,
            stdin,
            stdout,
            hello,
        };
        client.hello = client.answer();
        client
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ask(&mut self, question: &Value) -> Value {
        writeln!(self.stdin, "{question}").unwrap();
        self.answer()
    }

    pub fn tools(&mut self) -> Value {
        self.ask(&json!("list"))
    }

    /// A call, and whatever came of it.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Called {
        let answer = self.ask(&json!({"tool": tool, "arguments": arguments}));
        let text = answer["text"].as_str().unwrap_or("null");
        Called {
            is_error: answer["is_error"].as_bool().unwrap_or(true),
            refused: answer["refused"].as_str().map(ToOwned::to_owned),
            answer: serde_json::from_str(text).unwrap(),
        }
    }

    /// A call that succeeds: its data.
    #[track_caller]
    pub fn data(&mut self, tool: &str, arguments: Value) -> Value {
        let called = self.call(tool, arguments);
        assert_eq!(called.answer["ok"], true, "{called:?}");
        assert!(!called.is_error, "{called:?}");
        called.answer["data"].clone()
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub struct Called {
    pub is_error: bool,
    pub refused: Option<String>,
    pub answer: Value,
}
