//! The other end of a connection, as a daemon would be.

use std::collections::VecDeque;

use futures_util::{SinkExt, StreamExt};
use heddle_core::ids::{HistoryId, MemberId, MeshId};
use heddle_core::membership::Signature;
use heddle_core::names::{AgentName, MemberName};
use heddle_core::witness::Witness;
use heddle_wire::broker::{
    AckItem, BROKER_PROTOCOL, ClientFrame, Delivery, ReplyResult, Request, Roster, SendItem,
    ServerFrame, Verdict,
};
use tokio::io::DuplexStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::principal::Principal;
use crate::ws::ws_config;

pub(super) struct Client {
    socket: WebSocketStream<DuplexStream>,
    passed_over: VecDeque<ServerFrame>,
}

/// What a client says first; tests change what they want to be wrong.
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) mesh: MeshId,
    pub(super) member: MemberId,
    pub(super) member_name: MemberName,
    pub(super) agents: Vec<AgentName>,
    pub(super) seen: HistoryId,
    pub(super) witnesses: Vec<Witness>,
    pub(super) signature: Option<Signature>,
}

impl Hello {
    pub(super) fn of(principal: &Principal, agents: &[&str]) -> Self {
        Self {
            protocol: BROKER_PROTOCOL,
            mesh: principal.mesh,
            member: principal.member,
            member_name: principal.member_name.clone(),
            agents: agents
                .iter()
                .map(|name| AgentName::parse(name).unwrap())
                .collect(),
            seen: HistoryId::ZERO,
            witnesses: Vec::new(),
            signature: None,
        }
    }

    fn frame(self) -> ClientFrame {
        ClientFrame::Hello {
            protocol: self.protocol,
            mesh: self.mesh,
            member: self.member,
            member_name: self.member_name,
            agents: self.agents,
            seen: self.seen,
            witnesses: self.witnesses,
            signature: self.signature,
        }
    }
}

impl Client {
    pub(super) async fn over(pipe: DuplexStream) -> Self {
        let socket = WebSocketStream::from_raw_socket(pipe, Role::Client, Some(ws_config()));
        Self {
            socket: socket.await,
            passed_over: VecDeque::new(),
        }
    }

    pub(super) async fn say(&mut self, frame: &ClientFrame) {
        let text = serde_json::to_string(frame).unwrap();
        self.say_raw(Message::text(text)).await;
    }

    pub(super) async fn say_raw(&mut self, message: Message) {
        // Whoever is hung up on in the middle of a sentence hears why when it listens.
        let _ = self.socket.send(message).await;
    }

    pub(super) async fn hello(&mut self, hello: Hello) {
        self.say(&hello.frame()).await;
    }

    pub(super) async fn send(&mut self, batch: u64, items: Vec<SendItem>) {
        self.say(&ClientFrame::Send { batch, items }).await;
    }

    pub(super) async fn ack(&mut self, deliveries: &[Delivery]) {
        let items = deliveries
            .iter()
            .map(|delivery| AckItem {
                history_id: delivery.history_id,
                agent: delivery.agent.clone(),
            })
            .collect();
        self.say(&ClientFrame::Ack { items }).await;
    }

    /// The next message that is not a ping, or `None` at the end.
    async fn message(&mut self) -> Option<Message> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(message)) => return Some(message),
                Some(Err(_)) | None => return None,
            }
        }
    }

    pub(super) async fn frame(&mut self) -> ServerFrame {
        match self.message().await {
            Some(Message::Text(text)) => ServerFrame::parse(&text).unwrap(),
            other => panic!("a frame was expected, not {other:?}"),
        }
    }

    /// The next frame of a kind. The broker answers and pushes when it likes, so what is passed over
    /// is kept for whoever asks for it; only rosters are not.
    async fn pick<T>(&mut self, wanted: impl Fn(ServerFrame) -> Result<T, ServerFrame>) -> T {
        for _ in 0..self.passed_over.len() {
            if let Some(frame) = self.passed_over.pop_front() {
                match wanted(frame) {
                    Ok(found) => return found,
                    Err(frame) => self.passed_over.push_back(frame),
                }
            }
        }
        loop {
            match wanted(self.frame().await) {
                Ok(found) => return found,
                Err(ServerFrame::Roster { .. }) => {}
                Err(frame) => self.passed_over.push_back(frame),
            }
        }
    }

    pub(super) async fn verdicts(&mut self) -> (u64, Vec<Verdict>) {
        self.pick(|frame| match frame {
            ServerFrame::Verdicts { batch, items, .. } => Ok((batch, items)),
            other => Err(other),
        })
        .await
    }

    /// Waits for the hint that the log has grown.
    pub(super) async fn log_grew(&mut self) {
        self.pick(|frame| match frame {
            ServerFrame::LogGrew {} => Ok(()),
            other => Err(other),
        })
        .await;
    }

    /// The epoch that an answer to a batch carries.
    pub(super) async fn verdict_epoch(&mut self) -> (Option<u64>, Vec<Verdict>) {
        self.pick(|frame| match frame {
            ServerFrame::Verdicts { epoch, items, .. } => Ok((epoch, items)),
            other => Err(other),
        })
        .await
    }

    pub(super) async fn deliveries(&mut self) -> Vec<Delivery> {
        self.pick(|frame| match frame {
            ServerFrame::Deliver { items } => Ok(items),
            other => Err(other),
        })
        .await
    }

    pub(super) async fn roster(&mut self) -> Roster {
        match self.frame().await {
            ServerFrame::Roster { roster } => roster,
            other => panic!("a roster was expected, not {other:?}"),
        }
    }

    pub(super) async fn request(&mut self, body: Request) -> ReplyResult {
        self.say(&ClientFrame::Request { request: 7, body }).await;
        self.pick(|frame| match frame {
            ServerFrame::Reply { request: 7, result } => Ok(result),
            other => Err(other),
        })
        .await
    }

    /// Reads to the end: the close code, and the reason in its JSON.
    pub(super) async fn closed(&mut self) -> (u16, String) {
        while let Some(message) = self.message().await {
            if let Message::Close(Some(frame)) = message {
                let reason: serde_json::Value = serde_json::from_str(&frame.reason).unwrap();
                let reason = reason["reason"].as_str().unwrap().to_owned();
                // Completes the handshake.
                while self.message().await.is_some() {}
                return (frame.code.into(), reason);
            }
        }
        panic!("the connection ended without a close");
    }
}
