//! A mesh in a running daemon: its rows, its roster, its live link.

mod mailboxes;
mod past;
mod tries;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use heddle_core::clock::WallMs;
use heddle_core::envelope::Address;
use heddle_core::error_code::ErrorCode;
use heddle_core::ids::{BrokerId, HistoryId, MemberId, Party};
use heddle_core::limits::REPLY_TIMEOUT;
use heddle_core::membership::MemberKey;
use heddle_core::names::{AgentName, MemberName};
use heddle_core::retention::DedupeMode;
use heddle_store::{Mesh, Store};
use heddle_wire::broker::{ReplyResult, Request, Roster, RosterAgent};
use heddle_wire::problem::Problem;
use tokio::sync::{Notify, watch};

use crate::files::fetch::Fetch;
use crate::inbox::displaced::Displaced;
use crate::inbox::receipts::Receipts;
use crate::link::{Connector, Live};
use crate::membership::{Remembered, Standing};
use crate::outbox::lost::Forgotten;
use crate::outbox::window::Window;
use crate::refusals::Refusals;
use crate::roster::{Known, Stale};
use crate::shared::{Shared, lock, read, write};
use crate::sync::Sync;

/// A broker that was heard so long ago is asked again before something is said to be of now.
const HEARD_MS_MAX: i64 = 1_000;
/// How long it has for that.
const ALIVE_WITHIN: Duration = Duration::from_secs(3);

/// What the connector of our own broker calls it.
const OWN_BROKER: &str = "embedded";

/// What proves who we are in a mesh.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    pub(crate) key: Option<Arc<MemberKey>>,
    /// The only broker that it is shown to.
    pub(crate) pinned: Option<BrokerId>,
}

/// What a broker was told by this home, and what its store knows of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Older {
    pub(crate) held: HistoryId,
    pub(crate) here: HistoryId,
}

pub(crate) struct MeshState {
    pub(crate) identity: Identity,
    /// How its broker is reached; none in tests. Another one once the mesh has moved.
    connector: RwLock<Option<Arc<dyn Connector>>>,
    /// Held while there is a connection, and by whoever moves the mesh.
    pub(crate) linking: tokio::sync::Mutex<()>,
    /// Ends the connection of now.
    pub(crate) cut: Notify,
    /// What the broker called itself.
    broker_id: Mutex<Option<BrokerId>>,
    pub(crate) mesh: Mesh,
    /// What its broker was called when it was loaded.
    broker: String,
    /// This home's mailboxes.
    agents: RwLock<BTreeSet<AgentName>>,
    roster: RwLock<(Roster, Option<WallMs>)>,
    /// What members were called whom the roster does not name any more.
    past: RwLock<BTreeMap<MemberId, MemberName>>,
    live: watch::Sender<Option<Arc<Live>>>,
    last_error: Mutex<Option<String>>,
    /// A try to connect has failed.
    tried: Notify,
    /// Rows may be due. A hint: the table is the truth.
    pub(crate) drain: Notify,
    /// There may be work in a queue that somebody waits for. A hint as well.
    pub(crate) work: Notify,
    /// The age at which rows die, as it was last agreed with the broker; 0 while that is not known.
    max_age_hours: AtomicU32,
    /// For how many hours the connected broker remembers an id; 0 for ever, or as long as none has said it.
    memory_hours: AtomicU32,
    pub(crate) receipts: Receipts,
    /// Places that the broker has given out twice.
    pub(crate) displaced: Displaced,
    /// Its data and the mesh's log.
    pub(crate) sync: Sync,
    /// The bytes of others' files.
    pub(crate) fetch: Fetch,
    /// Why the broker does not take what waits.
    pub(crate) refusals: Refusals,
    /// Its budget at the broker.
    pub(crate) window: Window,
    /// Our store is an earlier copy of itself, as this process found out.
    older: Mutex<Option<Older>>,
    /// There may be something to send again that the broker has lost. A hint: the table is the truth.
    pub(crate) lost_again: Notify,
    /// How much of that this process has sent.
    lost_sent: AtomicU64,
    /// And how much it found too old for that.
    lost_old: AtomicU64,
    /// Whether we are let in, and whom our own broker has lost.
    pub(crate) standing: Standing,
}

impl MeshState {
    /// Loads what the store remembers of the mesh.
    pub(crate) async fn load(
        mesh: Mesh,
        broker: String,
        store: &Store,
    ) -> Result<Self, heddle_store::StoreError> {
        let agents = store.agents(mesh.mesh).await?;
        let remembered = store.roster(mesh.mesh).await?;
        let max_age_hours = store.max_age_hours(mesh.mesh).await?;
        let (document, as_of) = remembered.map_or_else(Default::default, |(document, as_of)| {
            // A cache in an older shape is forgotten; the broker says it again on connecting.
            let document: Remembered = serde_json::from_str(&document).unwrap_or_default();
            (document, Some(as_of))
        });
        Ok(Self {
            identity: Identity::default(),
            connector: RwLock::new(None),
            linking: tokio::sync::Mutex::default(),
            cut: Notify::new(),
            broker_id: Mutex::new(None),
            mesh,
            broker,
            agents: RwLock::new(agents.into_iter().map(|row| row.agent).collect()),
            roster: RwLock::new((document.roster, as_of)),
            past: RwLock::new(document.past),
            live: watch::Sender::new(None),
            last_error: Mutex::new(None),
            tried: Notify::new(),
            drain: Notify::new(),
            work: Notify::new(),
            max_age_hours: AtomicU32::new(max_age_hours.unwrap_or(0)),
            memory_hours: AtomicU32::new(0),
            receipts: Receipts::default(),
            displaced: Displaced::default(),
            sync: Sync::default(),
            fetch: Fetch::default(),
            refusals: Refusals::default(),
            window: Window::default(),
            older: Mutex::new(None),
            lost_again: Notify::new(),
            lost_sent: AtomicU64::new(0),
            lost_old: AtomicU64::new(0),
            standing: Standing::remembering(document.missed),
        })
    }

    pub(crate) fn with(mut self, identity: Identity, connector: Arc<dyn Connector>) -> Self {
        self.standing.pin(identity.pinned);
        self.identity = identity;
        *write(&self.connector) = Some(connector);
        self
    }

    /// How its broker is reached.
    pub(crate) fn connector(&self) -> Option<Arc<dyn Connector>> {
        read(&self.connector).clone()
    }

    /// It has this broker from now on, and is shown to no other. Whoever calls holds `linking`.
    pub(crate) fn move_to(&self, connector: Arc<dyn Connector>, broker: BrokerId) {
        self.standing.pin(Some(broker));
        *write(&self.connector) = Some(connector);
    }

    /// `embedded`, or the broker's URL.
    pub(crate) fn broker(&self) -> String {
        let connector = self.connector();
        connector.map_or_else(|| self.broker.clone(), |connector| connector.label())
    }

    /// Where others reach the broker of this mesh.
    pub(crate) fn reach(&self) -> Option<String> {
        self.connector()?.reach()
    }

    /// Changes of others that are here and no more in the log.
    pub(crate) fn kept_in_words(&self) -> Option<String> {
        let count = self.sync.kept().of_others;
        (count > 0).then(|| {
            format!(
                "{count} changes that others made and this home has are not in the log of mesh {name} since its broker was put back from an older copy; those whose homes still have them come by themselves, the others `heddle mesh give-back --out FILE --mesh {name}` gives back",
                name = self.mesh.name
            )
        })
    }

    /// What keeps others from reaching it.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.connector()?.trouble()
    }

    /// Rows of our own broker that do not fit together.
    pub(crate) fn orphans(&self) -> usize {
        self.connector().map_or(0, |connector| connector.orphans())
    }

    pub(crate) fn broker_id(&self) -> Option<BrokerId> {
        *lock(&self.broker_id)
    }

    pub(crate) fn set_broker_id(&self, broker: Option<BrokerId>) {
        *lock(&self.broker_id) = broker;
    }

    pub(crate) fn party(&self, agent: AgentName) -> Party {
        Party {
            member: self.mesh.member,
            agent,
        }
    }

    pub(crate) fn own_agents(&self) -> BTreeSet<AgentName> {
        read(&self.agents).clone()
    }

    pub(crate) fn is_own(&self, agent: &AgentName) -> bool {
        read(&self.agents).contains(agent)
    }

    // --- the roster ---------------------------------------------------------

    pub(crate) fn resolve(&self, to: &Address) -> Result<String, Problem> {
        self.with_known(|known| known.resolve(to))
    }

    pub(crate) fn with_known<T>(&self, f: impl FnOnce(&Known<'_>) -> T) -> T {
        let roster = read(&self.roster);
        let agents = read(&self.agents);
        f(&Known {
            past: &read(&self.past),
            roster: &roster.0,
            own_member: self.mesh.member,
            own_name: &self.mesh.member_name,
            own_agents: &agents,
            stale: (!self.is_answering()).then(|| Stale {
                as_of: self.heard().max(roster.1),
            }),
        })
    }

    /// Mailboxes of this home that one message may come to: those of a topic, or the one that is written to.
    pub(crate) fn mailboxes_of_one(&self) -> u64 {
        let of_topics = self.with_known(|known| {
            let own = |agents: &Vec<RosterAgent>| {
                let own = agents.iter().filter(|one| one.member == known.own_member);
                own.count()
            };
            let topics = known.roster.topics.iter();
            topics.map(|topic| own(&topic.subscribers)).max()
        });
        of_topics.unwrap_or(0).max(1) as u64
    }

    /// `@member/agent` for people.
    pub(crate) fn address(&self, member: MemberId, agent: &AgentName) -> String {
        let agent = agent.clone();
        self.with_known(|known| known.address(&RosterAgent { member, agent }))
    }

    /// What people call this home's own member, apart from its namesakes.
    pub(crate) fn called(&self) -> String {
        self.with_known(|known| known.called(self.mesh.member, &self.mesh.member_name))
    }

    /// Up to when the roster is known to be true: the broker tells every change, so up to when it was last heard.
    pub(crate) fn as_of(&self) -> Option<String> {
        let told = read(&self.roster).1;
        self.heard().max(told).map(WallMs::to_rfc3339)
    }

    /// Asks the broker for a sign of life, unless it gave one a moment ago: what is then said to be of now is.
    pub(crate) async fn look_alive(&self, now: WallMs) {
        let Some(live) = self.live() else {
            return;
        };
        let age_ms = live.heard().map(|at| now.0.saturating_sub(at.0));
        if !age_ms.is_some_and(|age| (0..HEARD_MS_MAX).contains(&age)) {
            let _ = live.request_within(Request::Roster, ALIVE_WITHIN).await;
        }
    }

    /// When anything last came over the connection of now.
    fn heard(&self) -> Option<WallMs> {
        self.live()?.heard()
    }

    /// The link is gone: up to when the broker was last heard everything we hold was true (C29).
    pub(crate) async fn note_lost(&self, shared: &Shared, heard: Option<WallMs>) {
        let roster = read(&self.roster).0.clone();
        self.keep_roster(shared, roster, heard.unwrap_or(shared.clock.wall()))
            .await;
    }

    /// What is kept beside the roster has changed.
    pub(crate) async fn note_changed(&self, shared: &Shared) {
        let (roster, as_of) = read(&self.roster).clone();
        self.keep_roster(shared, roster, as_of.unwrap_or(shared.clock.wall()))
            .await;
    }

    /// The broker of this very process hosts it.
    pub(crate) fn is_hosted_here(&self) -> bool {
        self.broker() == OWN_BROKER
    }

    pub(crate) async fn set_roster(&self, shared: &Shared, roster: Roster) {
        self.keep_roster(shared, roster, shared.clock.wall()).await;
    }

    /// Asks for the roster as it is now: after a change of ours, what the caller does next must see it.
    pub(crate) async fn ask_for_roster(&self, shared: &Shared) {
        if let Ok(ReplyResult::Roster { roster }) = self.ask(Request::Roster).await {
            self.set_roster(shared, roster).await;
        }
    }

    async fn keep_roster(&self, shared: &Shared, roster: Roster, now: WallMs) {
        let document = {
            let mut held = write(&self.roster);
            if self.is_hosted_here() {
                self.standing.compare(&held.0, &roster);
            }
            let past = self.past_behind(&held.0, &roster);
            *held = (roster.clone(), Some(now));
            let remembered = Remembered {
                roster,
                missed: self.standing.missed(),
                past,
            };
            serde_json::to_string(&remembered).unwrap_or_default()
        };
        if let Err(error) = shared
            .store
            .save_roster(self.mesh.mesh, document, now)
            .await
        {
            tracing::warn!(%error, "the roster could not be remembered");
        }
    }

    // --- ages ---------------------------------------------------------------

    pub(crate) fn max_age_hours(&self) -> Option<u32> {
        Some(self.max_age_hours.load(Ordering::Relaxed)).filter(|hours| *hours > 0)
    }

    pub(crate) fn memory_hours(&self) -> Option<u32> {
        Some(self.memory_hours.load(Ordering::Relaxed)).filter(|hours| *hours > 0)
    }

    /// As the broker has just said it; nobody needs it without a broker to ask.
    pub(crate) fn set_memory(&self, dedupe: DedupeMode) {
        let hours = dedupe.days().map_or(0, |days| days.saturating_mul(24));
        self.memory_hours.store(hours, Ordering::Relaxed);
    }

    pub(crate) async fn set_max_age_hours(&self, shared: &Shared, hours: u32) {
        self.max_age_hours.store(hours, Ordering::Relaxed);
        let set = shared.store.set_max_age_hours(self.mesh.mesh, hours).await;
        if let Err(error) = set {
            tracing::warn!(%error, "the agreed max age could not be remembered");
        }
    }

    // --- the link -------------------------------------------------------------

    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.live.borrow().clone()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.live.borrow().is_some()
    }

    /// Connected, and the broker answers what it is asked.
    pub(crate) fn is_answering(&self) -> bool {
        self.live().is_some_and(|live| !live.is_silent())
    }

    /// Why nothing can be asked or sent now, in a sentence about the mesh; `None` where it can.
    pub(crate) fn out_of_reach(&self) -> Option<String> {
        let name = &self.mesh.name;
        let Some(live) = self.live() else {
            let why = self.last_error();
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            return Some(format!("mesh {name} has no connection to its broker{why}"));
        };
        live.is_silent().then(|| self.unanswered())
    }

    fn unanswered(&self) -> String {
        let heard = self.heard().map_or_else(
            || "nothing was heard of it so far".to_owned(),
            |at| format!("it was last heard at {}", at.to_rfc3339()),
        );
        format!(
            "the broker of mesh {} does not answer: the connection is open, but {heard}",
            self.mesh.name
        )
    }

    pub(crate) fn set_older(&self, older: Older) {
        *lock(&self.older) = Some(older);
    }

    pub(crate) fn older(&self) -> Option<Older> {
        *lock(&self.older)
    }

    /// So many messages that the broker had lost are there again.
    pub(crate) fn count_lost_again(&self, count: u64) {
        self.lost_sent.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn lost_again_count(&self) -> u64 {
        self.lost_sent.load(Ordering::Relaxed)
    }

    /// So many that the broker had lost are too old to be sent again.
    pub(crate) fn count_lost_old(&self, count: u64) {
        self.lost_old.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn lost_old_count(&self) -> u64 {
        self.lost_old.load(Ordering::Relaxed)
    }

    /// Topics and subscriptions that the broker of before knew and this one does not.
    pub(crate) fn forgotten_by(&self, roster: &Roster) -> Forgotten {
        Forgotten::between(&read(&self.roster).0, roster, self)
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    pub(crate) fn set_error(&self, why: String) {
        *lock(&self.last_error) = Some(why);
    }

    pub(crate) fn set_live(&self, live: Option<Arc<Live>>) {
        if live.is_some() {
            *lock(&self.last_error) = None;
            self.standing.bar(None);
        }
        self.live.send_replace(live);
        self.sync.linked();
        self.fetch.wake();
    }

    pub(crate) async fn wait_connected(&self) {
        // The sender lives as long as self, so this cannot fail.
        let _ = self.live.subscribe().wait_for(Option::is_some).await;
    }

    /// Asks the broker. Refusals become problems of the same code.
    pub(crate) async fn ask(&self, request: Request) -> Result<ReplyResult, Problem> {
        self.ask_within(request, REPLY_TIMEOUT).await
    }

    /// The same for somebody who has less time.
    pub(crate) async fn ask_within(
        &self,
        request: Request,
        time: Duration,
    ) -> Result<ReplyResult, Problem> {
        let Some(live) = self.live() else {
            return Err(self.not_connected());
        };
        match live.request_within(request, time).await {
            Some(ReplyResult::Refused(refused)) => {
                let code = ErrorCode::parse(&refused.code).unwrap_or(ErrorCode::Internal);
                Err(Problem::new(code, refused.detail))
            }
            Some(reply) => Ok(reply),
            // It went out, and may have been heard: that is not the same as a broker that is away.
            None => Err(self.not_connected().with("asked", true)),
        }
    }

    /// One truth for every door: the status says the same.
    fn not_connected(&self) -> Problem {
        // It may have been heard again since a question to it ran out of time.
        let why = self.out_of_reach().unwrap_or_else(|| self.unanswered());
        Problem::new(ErrorCode::NotConnected, why)
    }
}
