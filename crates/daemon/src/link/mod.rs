//! The connection to a mesh's broker: made through a [`Connector`], remade for ever.
//!
//! A lost connection pauses the whole mesh with a jittered, growing wait; a broker that cannot be
//! worked with (close codes 4010–4012) stops its mesh, and the daemon where no other mesh is left to serve.

mod connector;
mod handshake;
mod live;
mod register;
mod session;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use heddle_core::backoff::reconnect;
use heddle_core::limits::BACKOFF_MS_MAX;

pub(crate) use connector::is_here;
pub use connector::{
    Asking, Bounding, ConnectError, Connector, Duplex, Hosted, Hosting, LinkStream, Looking,
    UrlConnector, ws_config,
};
pub(crate) use handshake::next_frame;
pub(crate) use live::{Answered, Live};
pub(crate) use register::Registration;
pub(crate) use session::SessionEnd;

use crate::membership::{Barred, Unfit};
use crate::mesh::MeshState;
use crate::shared::Shared;
use crate::start_error::Fatal;

/// Keeps one mesh connected until the daemon stops.
pub(crate) async fn keep(shared: Arc<Shared>, mesh: Arc<MeshState>) {
    let mut failures = 0;
    while !shared.shutdown.is_cancelled() {
        // Whoever moves the mesh holds it meanwhile, for as long as a few answers take.
        let linked = mesh.linking.lock().await;
        let Some(connector) = mesh.connector() else {
            return;
        };
        let why = match connector.connect().await {
            Err(error) => not_reached(&mesh, &error),
            Ok(stream) => match session::run(&shared, &mesh, stream).await {
                SessionEnd::Stopped => return,
                SessionEnd::Broken(why) => {
                    mesh.set_error(why.clone());
                    shared.fail(format!("mesh {}: {why}", mesh.mesh.name));
                    return;
                }
                SessionEnd::Unfit(unfit) => {
                    if !goes_on_without(&shared, &mesh, &unfit) {
                        return;
                    }
                    // Only its operator can change it, and may.
                    failures = u32::MAX;
                    format!("the broker cannot be used: {}", unfit.why)
                }
                SessionEnd::NotLetIn(barred) => {
                    // Only a person can change that; asking often would not.
                    failures = u32::MAX;
                    mesh.standing.bar(Some(barred.clone()));
                    barred.why
                }
                SessionEnd::Stranger(barred) => {
                    mesh.standing.bar(Some(barred.clone()));
                    barred.why
                }
                SessionEnd::Replaced(why) => {
                    // The longest wait: two that throw each other out serve nobody.
                    failures = u32::MAX;
                    format!(
                        "another process uses this home's identity ({why}); stop one of the two"
                    )
                }
                SessionEnd::Lost { why, was_live } => {
                    if was_live {
                        failures = 0;
                    }
                    why
                }
            },
        };
        drop(linked);
        tracing::warn!(mesh = %mesh.mesh.name, %why, "no connection to the broker");
        metrics::counter!("heddle_link_lost_total").increment(1);
        mesh.not_connected_because(why);
        let wait = match failures {
            u32::MAX => Duration::from_millis(BACKOFF_MS_MAX),
            failures => reconnect(failures, shared.ids.below(u64::MAX)),
        };
        failures = failures.saturating_add(1);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = mesh.standing.again.notified() => failures = 0,
            () = shared.shutdown.cancelled() => {}
        }
    }
}

/// Why there is no way to it. What is wrong with our own settings waits for a person, who is told.
fn not_reached(mesh: &MeshState, error: &ConnectError) -> String {
    let why = error.to_string();
    if error.is_ours {
        mesh.standing.bar(Some(Barred::by_its_settings(&why)));
    }
    why
}

/// The broker of this mesh cannot be worked with. The other meshes go on; where none is left, the daemon ends.
fn goes_on_without(shared: &Shared, mesh: &MeshState, unfit: &Unfit) -> bool {
    mesh.set_error(unfit.why.clone());
    mesh.standing.bar(Some(Barred::unfit(unfit)));
    let is_alone = shared.meshes.iter().all(|one| one.standing.is_unfit());
    if is_alone {
        let why = format!(
            "the broker of mesh {} cannot be used: {}",
            mesh.mesh.name, unfit.why
        );
        shared.fail_until_changed(if unfit.is_ours {
            Fatal::Override(why)
        } else {
            Fatal::Broker(why)
        });
    }
    !is_alone
}
