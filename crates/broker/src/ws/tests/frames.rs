//! T-25: bytes below the frames, as no WebSocket library would write them.

use std::time::Duration;

use heddle_core::limits::{FRAME_BYTES_MAX, PING_DEADLINE};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, WriteHalf};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::house::{House, end};
use crate::storage::MemoryStorage;
use crate::test_support::{mesh, principal, send_item};
use crate::ws::{Ending, ws_config};

const TEXT: u8 = 0x01;
const CONTINUATION: u8 = 0x00;
const PING: u8 = 0x09;
const LAST: u8 = 0x80;
const COMPRESSED: u8 = 0x40;
const MASKED: u8 = 0x80;

/// One frame under the mask of zeros, which changes nothing.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(first, payload.len() as u64);
    bytes.extend_from_slice(payload);
    bytes
}

/// A frame that announces so many bytes, without them.
fn head(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![first];
    match length {
        0..126 => bytes.push(MASKED | u8::try_from(length).unwrap()),
        126..65_536 => {
            bytes.push(MASKED | 0x7e);
            bytes.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        }
        _ => {
            bytes.push(MASKED | 0x7f);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

struct Raw {
    to: WriteHalf<DuplexStream>,
    said: JoinHandle<Vec<u8>>,
    serving: JoinHandle<Ending>,
}

impl Raw {
    /// A connection that has said hello, as plain bytes.
    async fn enter(house: &House<MemoryStorage>) -> Self {
        let (near, far) = tokio::io::duplex(64 << 10);
        let socket = WebSocketStream::from_raw_socket(far, Role::Server, Some(ws_config())).await;
        let (broker, shutdown) = (house.broker.clone(), house.shutdown.clone());
        let claim = principal("a");
        let serving = tokio::spawn(async move { broker.serve(socket, claim, shutdown).await });
        let (mut from, mut to) = tokio::io::split(near);
        let said = tokio::spawn(async move {
            let mut said = Vec::new();
            let _ = from.read_to_end(&mut said).await;
            said
        });
        let hello = json!({
            "type": "hello", "protocol": 1, "mesh": mesh(1).to_string(),
            "member": principal("a").member.to_string(), "member_name": "a", "agents": ["one"], "seen": "0.0",
        });
        let hello = frame(LAST | TEXT, hello.to_string().as_bytes());
        to.write_all(&hello).await.unwrap();
        Self { to, said, serving }
    }

    /// The code of the close that came at the end, and how many bytes came in all.
    async fn closed(self) -> (u16, Ending) {
        let ending = end(self.serving).await;
        drop(self.to);
        let said = self.said.await.unwrap();
        let mut rest = said.as_slice();
        let mut code = 0;
        while let [first, length, tail @ ..] = rest {
            let (length, tail) = match length {
                126 => (
                    usize::from(u16::from_be_bytes([tail[0], tail[1]])),
                    &tail[2..],
                ),
                127 => {
                    let length = u64::from_be_bytes(tail[..8].try_into().unwrap());
                    (usize::try_from(length).unwrap(), &tail[8..])
                }
                length => (usize::from(*length), tail),
            };
            if *first == 0x88 {
                code = u16::from_be_bytes([tail[0], tail[1]]);
            }
            rest = &tail[length..];
        }
        (code, ending)
    }
}

#[tokio::test(start_paused = true)]
async fn t_25_frames_that_are_too_large_or_break_the_protocol_are_closed_and_nobody_else_suffers() {
    let house = House::new().await;
    let (mut honest, _serving) = house.enter("b", &["one"]).await;
    let cases: [(&str, Vec<u8>, u16); 9] = [
        // Refused by what it announces: nothing is kept for it.
        (
            "too large",
            head(LAST | TEXT, FRAME_BYTES_MAX as u64 + 1),
            1009,
        ),
        ("absurd", head(LAST | TEXT, u64::MAX >> 1), 1009),
        ("unmasked", [&[LAST | TEXT, 2][..], b"{}"].concat(), 1002),
        ("compressed", frame(LAST | COMPRESSED | TEXT, b"{}"), 1002),
        ("reserved kind", frame(LAST | 0x03, b"{}"), 1002),
        ("out of turn", frame(LAST | CONTINUATION, b"{}"), 1002),
        ("half a ping", frame(PING, b"x"), 1002),
        ("large ping", frame(LAST | PING, &[0; 126]), 1002),
        ("not text", frame(LAST | TEXT, &[0xff, 0xfe]), 1008),
    ];
    for (number, (name, bytes, code)) in (0_u64..).zip(cases) {
        let mut raw = Raw::enter(&house).await;
        raw.to.write_all(&bytes).await.unwrap();
        assert_eq!(raw.closed().await.0, code, "{name}");
        let id = format!("id-{number}");
        honest
            .send(number, vec![send_item("one", &id, "@b/one", "x")])
            .await;
        assert_eq!(honest.verdicts().await.0, number, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn t_25_a_message_in_fragments_for_ever_ends_at_the_bound_or_at_the_deadline() {
    let house = House::new().await;
    let mut raw = Raw::enter(&house).await;
    raw.to.write_all(&frame(TEXT, b"{")).await.unwrap();
    let part = frame(CONTINUATION, &vec![b' '; 32 << 10]);
    let parts_max = 2 * FRAME_BYTES_MAX / (32 << 10);
    for written in 0.. {
        assert!(written < parts_max, "more is taken than a message may have");
        if raw.to.write_all(&part).await.is_err() {
            break;
        }
    }
    assert_eq!(raw.closed().await.0, 1009);
    // Fragments of nothing never reach the bound; that the message does not come is silence.
    let mut raw = Raw::enter(&house).await;
    raw.to.write_all(&frame(TEXT, b"{")).await.unwrap();
    let begun = tokio::time::Instant::now();
    while raw.to.write_all(&frame(CONTINUATION, b"")).await.is_ok() {
        assert!(begun.elapsed() < PING_DEADLINE * 3, "it is never cut");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(raw.closed().await.1, Ending::PeerSilent);
}

#[tokio::test(start_paused = true)]
async fn t_25_a_flood_of_pings_is_closed_and_a_ping_now_and_then_is_not() {
    let house = House::new().await;
    let mut raw = Raw::enter(&house).await;
    for _ in 0..2_000 {
        if raw.to.write_all(&frame(LAST | PING, b"x")).await.is_err() {
            break;
        }
    }
    assert_eq!(raw.closed().await.0, 1008);
    let mut raw = Raw::enter(&house).await;
    for _ in 0..2_000 {
        raw.to.write_all(&frame(LAST | PING, b"x")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!raw.serving.is_finished());
}
