//! A socket between `heddle effect run` and its daemon: it kills the caller at a named request.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{Home, Ran};

/// When the caller dies: before the daemon hears the request, or after it answered and before the caller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Before,
    After,
}

/// Runs the verb with its requests through the proxy, and ends it with SIGKILL at that moment.
pub fn kill_at(home: &Home, moment: Moment, path: &'static str, args: &[&str]) {
    let folder = tempfile::Builder::new().prefix("hdp").tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("daemon.sock")).unwrap();
    let (reached, kill) = channel();
    let daemon = home.path().join("daemon.sock");
    std::thread::spawn(move || serve(&listener, &daemon, moment, path, &reached));
    let mut command = home.command(args);
    command.env("HEDDLE_HOME", folder.path());
    let child = command.spawn().unwrap();
    wait_and_kill(child, &kill, path);
}

fn wait_and_kill(mut child: Child, kill: &Receiver<()>, path: &str) {
    let told = kill.recv_timeout(std::time::Duration::from_secs(60));
    assert!(told.is_ok(), "the run never came to {path}");
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), None, "it must have died of the signal");
}

fn serve(
    listener: &UnixListener,
    daemon: &PathBuf,
    moment: Moment,
    path: &str,
    reached: &Sender<()>,
) {
    for caller in listener.incoming() {
        let caller = caller.unwrap();
        let request = message(&caller);
        let first = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        let is_it = first.starts_with(&format!("POST {path} "));
        if is_it && moment == Moment::Before {
            reached.send(()).unwrap();
            // Nobody answers it any more.
            std::thread::park();
        }
        let mut there = UnixStream::connect(Path::new(daemon)).unwrap();
        there.write_all(&request).unwrap();
        let answer = message(&there);
        if is_it {
            reached.send(()).unwrap();
            std::thread::park();
        }
        (&caller).write_all(&answer).unwrap();
    }
}

/// Runs the verb to its end with its requests through `answer`, which is given each of them, by the path and whole. None
/// cuts the connection: that answer is lost.
pub fn run_through(
    home: &Home,
    args: &[&str],
    mut answer: impl FnMut(&str, &[u8]) -> Option<Vec<u8>>,
) -> Ran {
    let folder = tempfile::Builder::new().prefix("hdp").tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("daemon.sock")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut command = home.command(args);
    command.env("HEDDLE_HOME", folder.path());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        let Ok((mut caller, _)) = listener.accept() else {
            std::thread::sleep(std::time::Duration::from_millis(5));
            continue;
        };
        caller.set_nonblocking(false).unwrap();
        let request = message(&caller);
        let head = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        let path = head.split([' ', '?']).nth(1).unwrap_or_default();
        if let Some(answer) = answer(path, &request) {
            caller.write_all(&answer).unwrap();
        }
    }
    Ran::from(child.wait_with_output().unwrap())
}

/// What the daemon of this home answers to a whole request; None where it is not there.
pub fn ask_daemon(home: &Home, request: &[u8]) -> Option<Vec<u8>> {
    let mut there = UnixStream::connect(home.path().join("daemon.sock")).ok()?;
    there.write_all(request).ok()?;
    Some(message(&there))
}

/// One HTTP message with its body, by its length.
fn message(stream: &UnixStream) -> Vec<u8> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            return head.into_bytes();
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    [head.into_bytes(), body].concat()
}

/// What the verb said on its way out.
pub fn said(ran: &Ran) -> String {
    ran.json()["status"].as_str().unwrap_or_default().to_owned()
}
