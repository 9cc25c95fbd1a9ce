//! `heddle inbox --follow`: what is there, then what arrives, through every restart of the daemon.

use std::thread;
use std::time::Duration;

use heddle_core::error_code::ErrorKind;
use heddle_core::limits::PAGE_ROWS_MAX;
use heddle_wire::client::{Client, ClientError, EventStream};
use heddle_wire::ipc::{EVENT_GAP, EVENT_MESSAGE, InboxItem};

use super::text::describe_item;
use super::{Args, query, settle};
use crate::cli::{CliError, Context, exit, ui};

/// Between two tries to get an interrupted stream back.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);
/// Tries before it gives up on a daemon that went away: about a minute.
const RECONNECTS_MAX: u32 = 120;

struct Follow<'a> {
    context: &'a Context,
    client: &'a Client,
    args: &'a Args,
    /// Behind the last message that was printed.
    cursor: Option<String>,
    /// Printed, but the daemon could not be told yet.
    untold: Vec<String>,
    has_begun: bool,
}

/// What a try came to.
enum Tried {
    /// All that was there is printed; wait for more.
    CaughtUp,
    /// The daemon is away, starting or stopping.
    Interrupted,
}

pub(super) fn run(context: &Context, client: &Client, args: &Args) -> Result<(), CliError> {
    // The pages are of one mailbox in one mesh, and so is the stream behind them.
    let scope = match (&context.agent, &context.mesh) {
        (Some(agent), Some(mesh)) => (agent.clone(), mesh.clone()),
        (agent, mesh) => {
            let status = client.status()?;
            let first = status.meshes.into_iter().next().map(|first| first.mesh);
            (
                agent.clone().or(status.agent).unwrap_or_default(),
                mesh.clone().or(first).unwrap_or_default(),
            )
        }
    };
    let mut follow = Follow {
        context,
        client,
        args,
        cursor: args.since.clone(),
        untold: Vec::new(),
        has_begun: false,
    };
    // The first time it is the caller's business that no daemon runs.
    let mut tried = follow.pages()?;
    let mut failures = 0;
    loop {
        if let Tried::CaughtUp = tried
            && let Some(events) = follow.open(&scope, failures)?
        {
            if failures > 0 {
                ui::note("connected again");
            }
            failures = 0;
            follow.stream(events)?;
            ui::note("the stream was interrupted; connecting again");
        }
        failures += 1;
        thread::sleep(RECONNECT_EVERY);
        if let Tried::Interrupted = tried {
            tried = follow.pages_again(failures)?;
        }
    }
}

impl Follow<'_> {
    /// First what is there, page by page.
    fn pages(&mut self) -> Result<Tried, CliError> {
        loop {
            let mut page_query = query(self.context, self.args);
            page_query.retain(|(name, _)| *name != "since");
            page_query.extend(self.cursor.as_deref().map(|cursor| ("since", cursor)));
            let page = match self.client.inbox(&page_query) {
                Ok(page) => page,
                // It has answered once: from here on it is only an interruption.
                Err(error) if self.has_begun && is_passing(&error) => {
                    return Ok(Tried::Interrupted);
                }
                Err(error) => return Err(error.into()),
            };
            self.has_begun = true;
            let is_last = page.items.is_empty();
            self.show(&page.items)?;
            self.cursor = Some(page.cursor);
            if is_last {
                return Ok(Tried::CaughtUp);
            }
        }
    }

    fn pages_again(&mut self, failures: u32) -> Result<Tried, CliError> {
        match self.client.status() {
            Ok(_) => self.pages(),
            Err(error) if failures < RECONNECTS_MAX && is_passing(&error) => Ok(Tried::Interrupted),
            Err(error) => Err(error.into()),
        }
    }

    /// The stream behind the last message printed; `None` if it cannot be had right now.
    fn open(
        &self,
        (agent, mesh): &(String, String),
        failures: u32,
    ) -> Result<Option<EventStream>, CliError> {
        let mut filters = query(self.context, self.args);
        filters.retain(|(name, _)| !matches!(*name, "since" | "all" | "agent" | "mesh"));
        filters.extend([("agent", agent.as_str()), ("mesh", mesh.as_str())]);
        match self.client.events(&filters, self.cursor.as_deref()) {
            Ok(events) => Ok(Some(events)),
            Err(error) if failures < RECONNECTS_MAX && is_passing(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Until it breaks, however it does.
    fn stream(&mut self, mut events: EventStream) -> Result<(), CliError> {
        // What was printed right before an interruption can be told now.
        self.tell()?;
        while let Ok(Some(event)) = events.next_event() {
            if event.name == EVENT_GAP {
                ui::note("some older messages were taken by the retention before this");
            }
            if event.name != EVENT_MESSAGE {
                continue;
            }
            let item: InboxItem = serde_json::from_str(&event.data)
                .map_err(|error| CliError::new(exit::FAILED, error.to_string()))?;
            self.cursor = event.id;
            self.show(std::slice::from_ref(&item))?;
        }
        Ok(())
    }

    fn show(&mut self, items: &[InboxItem]) -> Result<(), CliError> {
        for item in items {
            self.context.print(item, describe_item)?;
            self.untold.push(item.id.clone());
        }
        self.tell()
    }

    /// Tells the daemon what was printed. One that is away right now is told later.
    fn tell(&mut self) -> Result<(), CliError> {
        while !self.untold.is_empty() {
            let count = self.untold.len().min(PAGE_ROWS_MAX);
            let ids = self.untold[..count].to_vec();
            match settle(self.context, self.client, self.args, ids) {
                Ok(()) => drop(self.untold.drain(..count)),
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Whether waiting can help: the daemon is away, starting, stopping or has no place free.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::NotRunning { .. } | ClientError::Broken(_) | ClientError::Silent => true,
        ClientError::Problem(problem) => problem
            .known_code()
            .is_some_and(|code| code.kind() == ErrorKind::Busy),
        _ => false,
    }
}
