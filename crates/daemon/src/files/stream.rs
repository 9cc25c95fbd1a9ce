//! A blob on its way out: looked through once before its first byte leaves, checked again while it goes.
//!
//! A reader costs two pieces of memory whatever the file's size, and a place; one that takes nothing for
//! too long loses both. Should the disk change its mind on the way, the answer ends too early, which
//! every client notices by its length: a wrong file never arrives whole.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use heddle_core::error_code::ErrorCode;
use heddle_core::limits::FILE_STALL_TIMEOUT;
use heddle_store::{BlobError, BlobReader, Blobs, FileRow};
use heddle_wire::problem::Problem;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

const PIECE_BYTES: usize = 256 << 10;
/// Pieces that wait for the socket.
const PIECES_WAITING: usize = 1;

/// Opens the blob of a file and looks at every byte of it.
pub(crate) async fn verified(blobs: &Blobs, row: &FileRow) -> Result<BlobReader, BlobError> {
    let (blobs, hash, size) = (blobs.clone(), row.hash, row.size);
    on_a_thread(move || {
        let mut reader = blobs.read(hash, size)?;
        reader.verify(&mut vec![0; PIECE_BYTES])?;
        Ok(reader)
    })
    .await
}

/// All of it, for a blob that is not large.
pub(crate) async fn whole(mut reader: BlobReader) -> Result<Vec<u8>, BlobError> {
    on_a_thread(move || {
        let mut bytes = Vec::new();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match reader.next(&mut piece)? {
                0 => return Ok(bytes),
                read => bytes.extend_from_slice(&piece[..read]),
            }
        }
    })
    .await
}

/// The answer that carries it.
pub(crate) fn answer(reader: BlobReader, permit: OwnedSemaphorePermit) -> Response {
    let size = reader.size();
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    tokio::spawn(send(reader, sender, permit));
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        let piece: Bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(piece)), receiver))
    });
    raw(Body::new(StreamBody::new(pieces)), size)
}

/// Bytes as an answer. What its owner says they are is not for a browser to act on.
pub(crate) fn raw(body: Body, size: u64) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    response
}

/// Reads piece by piece until the end, or until the reader hangs up or stalls.
async fn send(mut reader: BlobReader, sender: mpsc::Sender<Bytes>, _permit: OwnedSemaphorePermit) {
    loop {
        let read = on_a_thread(move || {
            let mut piece = vec![0; PIECE_BYTES];
            let read = reader.next(&mut piece)?;
            piece.truncate(read);
            Ok((reader, piece))
        });
        let piece = match read.await {
            Ok((_, piece)) if piece.is_empty() => return,
            Ok((rest, piece)) => {
                reader = rest;
                piece
            }
            Err(error) => {
                super::read_problem(&error);
                return;
            }
        };
        let sent = tokio::time::timeout(FILE_STALL_TIMEOUT, sender.send(Bytes::from(piece)));
        if !matches!(sent.await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Disks make wait; the runtime's own threads do not.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        let source = std::io::Error::other(error.to_string());
        Err(BlobError::Source(source))
    })
}

/// What to say when all places are taken.
pub(crate) fn no_place() -> Problem {
    Problem::new(
        ErrorCode::DaemonBusy,
        "as many files as may are being read or shared already",
    )
}
