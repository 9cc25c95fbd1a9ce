//! An answer of the lane as bytes: the same head and body that hyper writes for the routes.

use std::io::Write as _;

use heddle_core::error_code::ErrorKind;
use heddle_wire::ipc::SendAnswer;
use heddle_wire::problem::{PROBLEM_JSON, Problem};
use http::StatusCode;
use serde::Serialize;

/// Room for one answer, used again for the next.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: Vec<u8>,
    body: Vec<u8>,
}

impl Page {
    pub(super) fn accepted(&mut self, answer: &SendAnswer, is_last: bool, date: &str) -> &[u8] {
        self.write(StatusCode::ACCEPTED, JSON, answer, is_last, date)
    }

    pub(super) fn duplicate(&mut self, answer: &SendAnswer, is_last: bool, date: &str) -> &[u8] {
        self.write(StatusCode::OK, JSON, answer, is_last, date)
    }

    pub(super) fn refused(&mut self, problem: &Problem, is_last: bool, date: &str) -> &[u8] {
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let is_busy = problem
            .known_code()
            .is_some_and(|code| code.kind() == ErrorKind::Busy);
        let fields = if is_busy { BUSY } else { REFUSED };
        let fields = fields.replace("{media}", PROBLEM_JSON);
        self.write(status, &fields, problem, is_last, date)
    }

    /// In the order in which hyper writes its headers.
    fn write<T: Serialize>(
        &mut self,
        status: StatusCode,
        fields: &str,
        body: &T,
        is_last: bool,
        date: &str,
    ) -> &[u8] {
        self.body.clear();
        self.text.clear();
        // Neither can fail: our own types, and a vector.
        let _ = serde_json::to_writer(&mut self.body, body);
        let _ = write!(
            self.text,
            "HTTP/1.1 {} {}\r\n{fields}\r\n{}content-length: {}\r\ndate: {date}\r\n\r\n",
            status.as_str(),
            status.canonical_reason().unwrap_or_default(),
            if is_last { "connection: close\r\n" } else { "" },
            self.body.len(),
        );
        self.text.extend_from_slice(&self.body);
        &self.text
    }
}

const JSON: &str = "content-type: application/json\r\ncache-control: no-store";
const REFUSED: &str = "content-type: {media}\r\ncache-control: no-store";
const BUSY: &str = "content-type: {media}\r\ncache-control: no-store\r\nretry-after: 1";

#[cfg(test)]
mod tests {
    use heddle_core::error_code::ErrorCode;

    use super::*;

    #[test]
    fn a_busy_daemon_says_when_to_come_back_and_an_ended_connection_says_so() {
        let mut page = Page::default();
        let busy = Problem::new(ErrorCode::DaemonBusy, "full");
        let text = String::from_utf8(page.refused(&busy, true, "D").to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            head,
            format!(
                "HTTP/1.1 429 Too Many Requests\r\ncontent-type: {PROBLEM_JSON}\r\ncache-control: no-store\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\ndate: D",
                body.len()
            )
        );
        let wrong = Problem::new(ErrorCode::InvalidRequest, "no");
        let text = String::from_utf8(page.refused(&wrong, false, "D").to_vec()).unwrap();
        assert!(
            !text.contains("retry-after") && !text.contains("close"),
            "{text}"
        );
        assert!(text.ends_with('}'), "{text}");
    }
}
