//! The calls about one-time effects. Each is safe to repeat: the registrar answers with what stands.

use super::{Client, ClientError, percent_encode};
use crate::ipc::{
    EffectApproveAnswer, EffectApproveBody, EffectCompensateBody, EffectEndBody, EffectList,
    EffectLog, EffectRegisterBody, EffectRequestAnswer, EffectRequestBody, EffectResolveBody,
    EffectStartBody, EffectStory, EffectSurface, EffectVerifyBody, EffectView,
};

impl Client {
    pub fn request_effect(
        &self,
        body: &EffectRequestBody,
        id: Option<&str>,
    ) -> Result<EffectRequestAnswer, ClientError> {
        self.post("/v1/effect/request", id, body)
    }

    pub fn approve_effect(
        &self,
        body: &EffectApproveBody,
        id: Option<&str>,
    ) -> Result<EffectApproveAnswer, ClientError> {
        self.post("/v1/effect/approve", id, body)
    }

    pub fn deny_effect(
        &self,
        body: &EffectApproveBody,
        id: Option<&str>,
    ) -> Result<EffectView, ClientError> {
        self.post("/v1/effect/deny", id, body)
    }

    pub fn register_effect(&self, body: &EffectRegisterBody) -> Result<EffectView, ClientError> {
        self.post("/v1/effect/register", None, body)
    }

    pub fn start_effect(&self, body: &EffectStartBody) -> Result<EffectView, ClientError> {
        self.post("/v1/effect/start", None, body)
    }

    pub fn finish_effect(&self, body: &EffectEndBody) -> Result<EffectView, ClientError> {
        self.post("/v1/effect/finish", None, body)
    }

    pub fn resolve_effect(&self, body: &EffectResolveBody) -> Result<EffectView, ClientError> {
        self.post("/v1/effect/resolve", None, body)
    }

    pub fn verify_effect(&self, body: &EffectVerifyBody) -> Result<EffectView, ClientError> {
        self.post("/v1/effect/verify", None, body)
    }

    pub fn compensate_effect(
        &self,
        body: &EffectCompensateBody,
    ) -> Result<EffectView, ClientError> {
        self.post("/v1/effect/compensate", None, body)
    }

    pub fn compensated_effect(&self, body: &EffectEndBody) -> Result<EffectView, ClientError> {
        self.post("/v1/effect/compensated", None, body)
    }

    pub fn effect_status(&self, query: &[(&str, &str)]) -> Result<EffectView, ClientError> {
        self.get("/v1/effect/status", query)
    }

    /// The whole story of a key, a request, a registration or an attempt.
    pub fn effect_story(
        &self,
        id: &str,
        query: &[(&str, &str)],
    ) -> Result<EffectStory, ClientError> {
        self.get(
            &format!("/v1/explain/{}", percent_encode(&format!("effect:{id}"))),
            query,
        )
    }

    pub fn effects(&self, query: &[(&str, &str)]) -> Result<EffectList, ClientError> {
        self.get("/v1/effect/list", query)
    }

    pub fn effect_log(&self, query: &[(&str, &str)]) -> Result<EffectLog, ClientError> {
        self.get("/v1/effect/log", query)
    }

    pub fn effect_surface(&self, query: &[(&str, &str)]) -> Result<EffectSurface, ClientError> {
        self.get("/v1/effect/surface-check", query)
    }
}
