//! What a broker shows to those who watch it: `/healthz`, `/readyz`, `/metrics`.
//!
//! The first two are for a load balancer and say nothing that is not public. The figures are for whoever
//! holds the admin token.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use heddle_daemon::{LocalToken, MetricsPage};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use tokio_util::sync::CancellationToken;

use super::door::{Page, is_bearer, page, refusing};

/// How long what it stands on may take to answer before the broker counts as not ready.
const READY_WAIT: Duration = Duration::from_secs(2);

pub type Asked<'p> = Pin<Box<dyn Future<Output = Result<(), Waits>> + Send + 'p>>;

/// What a broker waits for: as people call it, and why.
#[derive(Debug)]
pub struct Waits {
    pub what: &'static str,
    pub why: String,
}

/// Whether something that the broker stands on answers now.
pub trait Probe: Send + Sync {
    /// As people call it.
    fn name(&self) -> &'static str;
    fn ask(&self) -> Asked<'_>;

    /// It does not.
    fn waits(&self, why: impl Into<String>) -> Waits
    where
        Self: Sized,
    {
        Waits {
            what: self.name(),
            why: why.into(),
        }
    }
}

pub struct Pages {
    pub probes: Vec<Box<dyn Probe>>,
    pub metrics: MetricsPage,
    pub admin: LocalToken,
    pub stopping: CancellationToken,
}

impl Pages {
    pub async fn answer(&self, request: &Request<Incoming>) -> Page {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let refused = page(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
            return refusing(refused, "GET, HEAD");
        }
        let mut answer = match request.uri().path() {
            "/healthz" => page(StatusCode::OK, "{\"status\":\"ok\"}\n"),
            "/readyz" => self.ready().await,
            "/metrics" => self.figures(request),
            _ => page(
                StatusCode::UPGRADE_REQUIRED,
                "this is a broker: a daemon connects here by WebSocket; /healthz, /readyz and /metrics are pages\n",
            ),
        };
        let headers = answer.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }

    /// What is wrong is named, not described: an address or a password may be in the description.
    async fn ready(&self) -> Page {
        if self.stopping.is_cancelled() {
            return page(
                StatusCode::SERVICE_UNAVAILABLE,
                "{\"ready\":false,\"waiting_for\":[\"stopping\"]}\n",
            );
        }
        let waiting = self.waiting().await;
        for (probe, why) in &waiting {
            tracing::warn!(probe, %why, "not ready");
        }
        let waiting: Vec<&str> = waiting.iter().map(|(probe, _)| *probe).collect();
        let is_ready = waiting.is_empty();
        let body = serde_json::json!({"ready": is_ready, "waiting_for": waiting});
        let status = if is_ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        page(status, &format!("{body}\n"))
    }

    /// What does not answer now, and why: for the operator, not for the page.
    pub async fn waiting(&self) -> Vec<(&'static str, String)> {
        let mut waiting = Vec::new();
        for probe in &self.probes {
            let asked = tokio::time::timeout(READY_WAIT, probe.ask()).await;
            waiting.push(match asked {
                Ok(Ok(())) => continue,
                Ok(Err(Waits { what, why })) => (what, why),
                Err(_) => (probe.name(), "no answer in time".to_owned()),
            });
        }
        waiting
    }

    fn figures(&self, request: &Request<Incoming>) -> Page {
        if !is_bearer(request.headers().get(AUTHORIZATION), &self.admin) {
            let words = "send `Authorization: Bearer <token>` with the content of admin_token in the data folder\n";
            return refusing(page(StatusCode::UNAUTHORIZED, words), "GET, HEAD");
        }
        let mut figures = page(StatusCode::OK, &self.metrics.render());
        let kind = HeaderValue::from_static("text/plain; version=0.0.4");
        figures.headers_mut().insert(CONTENT_TYPE, kind);
        figures
    }
}
