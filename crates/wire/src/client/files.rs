//! Shared files: their routes as methods, and a file's bytes as a stream.

use std::io::{self, BufReader, Read};
use std::os::unix::net::UnixStream;

use heddle_core::limits::FILE_ANSWER_EXTRA;

use super::body::Body;
use super::transport::{self, Head};
use super::{Client, ClientError, problem, target};
use crate::ipc::{
    ChangeAnswer, FileDeleteBody, FilePage, FileShareAnswer, FileShareBody, FileView, SweepAnswer,
    SweepBody,
};

/// The bytes of a file as they come. Ends with an error if they end too early.
#[derive(Debug)]
pub struct Download(Body<BufReader<UnixStream>>);

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Client {
    /// Shares under the id in the body; the same id again is safe. A large file takes its time.
    pub fn share_file(&self, body: &FileShareBody) -> Result<FileShareAnswer, ClientError> {
        let patient = self.clone().waiting(FILE_ANSWER_EXTRA);
        patient.post("/v1/file/share", None, body)
    }

    pub fn delete_file(&self, body: &FileDeleteBody) -> Result<ChangeAnswer, ClientError> {
        self.post("/v1/file/delete", None, body)
    }

    /// What is known of a file, and its bytes where they are few.
    pub fn file(&self, query: &[(&str, &str)]) -> Result<FileView, ClientError> {
        self.get("/v1/file/get", query)
    }

    /// The bytes, whatever their number. `query` as for [`Client::file`].
    pub fn file_bytes(&self, query: &[(&str, &str)]) -> Result<Download, ClientError> {
        let mut query = query.to_vec();
        query.push(("raw", "true"));
        let target = target("/v1/file/get", &query);
        // The daemon looks at all of it before it sends any of it.
        let patience = self.clone().waiting(FILE_ANSWER_EXTRA).patience;
        let reply = transport::exchange(&self.socket, &Head::get(&target), &[], patience)?;
        match reply.status {
            200 => Ok(Download(reply.body)),
            _ => Err(problem(reply)),
        }
    }

    pub fn files(&self, query: &[(&str, &str)]) -> Result<FilePage, ClientError> {
        self.get("/v1/file/list", query)
    }

    /// Takes away what nobody names.
    pub fn sweep_files(&self, body: &SweepBody) -> Result<SweepAnswer, ClientError> {
        let patient = self.clone().waiting(FILE_ANSWER_EXTRA);
        patient.post("/v1/file/sweep", None, body)
    }
}
