//! The same closed loop for callers on Unix sockets: one thread and one epoll, because on a machine of two
//! cores every microsecond of the client is taken from the server that is measured. Redis, the floors and
//! the product are asked by this one loop.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::error::{BenchError, Outcome};
use crate::load::{Load, Tally, Window};

const EVENTS_MAX: usize = 256;
const READ_BYTES: usize = 16 << 10;
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// One end of a connection that asks over and over, one question at a time.
pub trait Speaker: Send + 'static {
    fn stream(&self) -> &UnixStream;
    /// The next question, appended.
    fn question(&mut self, text: &mut Vec<u8>);
    /// How long the answer is that the bytes begin with, once it is whole; an unwanted one is an error.
    fn answer(&self, bytes: &[u8]) -> Outcome<Option<usize>>;
}

/// Runs all speakers on a thread of their own.
pub async fn converse<S: Speaker>(speakers: Vec<S>, seconds: f64) -> Outcome<Load> {
    tokio::task::spawn_blocking(move || run(speakers, seconds)).await?
}

struct Talk<S> {
    speaker: S,
    heard: Vec<u8>,
    asked: Instant,
}

fn run<S: Speaker>(speakers: Vec<S>, seconds: f64) -> Outcome<Load> {
    let window = Window::from_now(seconds);
    let mut tally = Tally::new()?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
    let mut question = Vec::new();
    let mut talks = Vec::with_capacity(speakers.len());
    for (place, mut speaker) in speakers.into_iter().enumerate() {
        let data = epoll::EventData::new_u64(place as u64);
        epoll::add(&epoll, speaker.stream(), data, epoll::EventFlags::IN)
            .map_err(std::io::Error::from)?;
        let asked = Instant::now();
        ask(&mut speaker, &mut question)?;
        talks.push(Talk {
            speaker,
            heard: Vec::with_capacity(READ_BYTES),
            asked,
        });
    }
    let mut open = talks.len();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut piece = vec![0; READ_BYTES];
    let patience = Timespec {
        tv_sec: i64::try_from(SILENCE_MAX.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    while open > 0 {
        epoll::wait(&epoll, spare_capacity(&mut events), Some(&patience))
            .map_err(std::io::Error::from)?;
        if events.is_empty() {
            return Err(BenchError::new("nobody answers any more"));
        }
        for event in events.drain(..) {
            let place = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(talk) = talks.get_mut(place) else {
                continue;
            };
            let Some(answered) = listen(talk, &mut piece)? else {
                continue;
            };
            tally.note(&window, talk.asked, answered);
            if answered < window.end {
                talk.asked = answered;
                ask(&mut talk.speaker, &mut question)?;
            } else {
                open -= 1;
            }
        }
    }
    Ok(tally.load(&window))
}

fn ask<S: Speaker>(speaker: &mut S, question: &mut Vec<u8>) -> Outcome<()> {
    question.clear();
    speaker.question(question);
    Ok(speaker.stream().write_all(question)?)
}

/// Reads once. The time at which the answer was whole.
fn listen<S: Speaker>(talk: &mut Talk<S>, piece: &mut [u8]) -> Outcome<Option<Instant>> {
    let count = talk.speaker.stream().read(piece)?;
    if count == 0 {
        return Err(BenchError::new("the other side hung up"));
    }
    talk.heard.extend_from_slice(&piece[..count]);
    Ok(talk.speaker.answer(&talk.heard)?.map(|length| {
        talk.heard.drain(..length);
        Instant::now()
    }))
}
