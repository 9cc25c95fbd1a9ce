//! A broker with its store and its connections, as an embedding process would have it.

use std::sync::Arc;
use std::time::Duration;

use heddle_core::clock::{ManualClock, ManualIds, WallMs};
use heddle_core::negotiate::ConnectionPolicy;
use heddle_wire::broker::ServerFrame;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use super::client::{Client, Hello};
use crate::limiter::{Budget, LocalLimiter};
use crate::principal::Claim;
use crate::storage::{MemoryStorage, Storage};
use crate::test_support::{memory, mesh, mesh_name, principal};
use crate::ws::{Broker, BrokerConfig, Ending, ws_config};

/// What a pipe holds before its writer has to wait.
const PIPE_BYTES: usize = 16 << 10;

pub(super) struct House<S> {
    pub(super) broker: Broker<S, LocalLimiter>,
    pub(super) storage: Arc<S>,
    pub(super) shutdown: CancellationToken,
    pub(super) clock: Arc<ManualClock>,
}

impl House<MemoryStorage> {
    pub(super) async fn new() -> Self {
        Self::over(memory(), BrokerConfig::default()).await
    }

    pub(super) async fn with_policy(policy: ConnectionPolicy) -> Self {
        let config = BrokerConfig {
            policy,
            ..BrokerConfig::default()
        };
        Self::over(memory(), config).await
    }
}

impl<S: Storage> House<S> {
    pub(super) async fn over(storage: Arc<S>, config: BrokerConfig) -> Self {
        let clock = Arc::new(ManualClock::at(WallMs(1_000)));
        let limiter = LocalLimiter::new(clock.clone(), Budget::default());
        let broker = Broker::new(
            storage.clone(),
            Arc::new(limiter),
            clock.clone(),
            Arc::new(ManualIds::seeded(1)),
            config,
        );
        broker
            .ensure_mesh(mesh(1), &mesh_name("home"))
            .await
            .unwrap();
        Self {
            broker,
            storage,
            shutdown: CancellationToken::new(),
            clock,
        }
    }

    /// Opens a connection that is proven to be this member's, and says nothing yet.
    pub(super) async fn connect(&self, name: &str) -> (Client, JoinHandle<Ending>) {
        self.connect_as(principal(name).into()).await
    }

    pub(super) async fn connect_as(&self, claim: Claim) -> (Client, JoinHandle<Ending>) {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let config = Some(ws_config());
        let socket = WebSocketStream::from_raw_socket(far, Role::Server, config).await;
        let (broker, shutdown) = (self.broker.clone(), self.shutdown.clone());
        let serving = tokio::spawn(async move { broker.serve(socket, claim, shutdown).await });
        (Client::over(near).await, serving)
    }

    /// Connects, is challenged, says hello and is welcome.
    pub(super) async fn enter(&self, name: &str, agents: &[&str]) -> (Client, JoinHandle<Ending>) {
        let (client, serving, _) = self.greet(Hello::of(&principal(name), agents), name).await;
        (client, serving)
    }

    /// The same with a hello of its own, and the welcome.
    pub(super) async fn greet(
        &self,
        hello: Hello,
        name: &str,
    ) -> (Client, JoinHandle<Ending>, ServerFrame) {
        let (mut client, serving) = self.connect(name).await;
        let challenge = client.frame().await;
        assert!(matches!(challenge, ServerFrame::Challenge { .. }));
        client.hello(hello).await;
        let welcome = client.frame().await;
        assert!(
            matches!(welcome, ServerFrame::Welcome { .. }),
            "{welcome:?}"
        );
        (client, serving, welcome)
    }
}

/// Waits for the end of a connection, with patience for a slow machine only.
pub(super) async fn end(serving: JoinHandle<Ending>) -> Ending {
    let patience = Duration::from_secs(300);
    tokio::time::timeout(patience, serving)
        .await
        .expect("the connection should have ended")
        .unwrap()
}

/// Tasks of this runtime besides the test itself, once those that are done are gone.
pub(super) async fn tasks_alive() -> usize {
    let metrics = tokio::runtime::Handle::current().metrics();
    for _ in 0..1_000 {
        if metrics.num_alive_tasks() == 0 {
            return 0;
        }
        tokio::task::yield_now().await;
    }
    metrics.num_alive_tasks()
}
