//! A row of a table.

use crate::support::wire::{Hello, Level, Sent};
use std::fmt;

/// What the client does.
pub(super) enum Attempt {
    /// It begins a handshake otherwise, goes on with it, and sends these packets once it is confirmed.
    Hello(Box<dyn Fn(&mut Hello)>, Vec<Sent>),
    /// It sends this packet between the server's Handshake packets and its own.
    Halfway(Sent),
    /// It sends these packets once the handshake is confirmed and litequic's control stream has begun.
    Confirmed(Vec<Sent>),
    /// It sends these one after the other, and has a request answered before the last.
    Paused(Vec<Sent>),
}

/// What litequic answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// CONNECTION_CLOSE of the transport, with this code.
    Transport(u64),
    /// CONNECTION_CLOSE of HTTP/3.
    Http3(u64),
    /// RESET_STREAM or STOP_SENDING of stream 0.
    Stream(u64),
    /// It goes on: a request is served.
    Served,
    /// The connection is over, without a CONNECTION_CLOSE.
    Silence,
}

/// A rule and its breach.
pub(super) struct Row {
    /// RFC and section.
    pub(super) rule: &'static str,
    pub(super) what: String,
    pub(super) attempt: Attempt,
    /// What the RFC requires.
    pub(super) expected: Answer,
    /// What comes instead, and why that is.
    pub(super) instead: Option<(Answer, &'static str)>,
}

impl Row {
    fn new(rule: &'static str, what: impl Into<String>, attempt: Attempt, expected: Answer) -> Self {
        Self { rule, what: what.into(), attempt, expected, instead: None }
    }

    /// Frames in one 1-RTT packet.
    pub(super) fn frames(
        rule: &'static str,
        what: impl Into<String>,
        frames: impl Into<Vec<u8>>,
        expected: Answer,
    ) -> Self {
        Self::new(rule, what, Attempt::Confirmed(vec![Sent::new(Level::OneRtt, frames)]), expected)
    }

    /// Packets after the handshake.
    pub(super) fn packets(rule: &'static str, what: impl Into<String>, packets: Vec<Sent>, expected: Answer) -> Self {
        Self::new(rule, what, Attempt::Confirmed(packets), expected)
    }

    /// Packets after the handshake, before the last of which litequic has read the others.
    pub(super) fn paused(rule: &'static str, what: impl Into<String>, packets: Vec<Sent>, expected: Answer) -> Self {
        Self::new(rule, what, Attempt::Paused(packets), expected)
    }

    /// A packet within the handshake.
    pub(super) fn halfway(rule: &'static str, what: impl Into<String>, packet: Sent, expected: Answer) -> Self {
        Self::new(rule, what, Attempt::Halfway(packet), expected)
    }

    /// Another ClientHello.
    pub(super) fn hello(
        rule: &'static str,
        what: impl Into<String>,
        edit: impl Fn(&mut Hello) + 'static,
        expected: Answer,
    ) -> Self {
        Self::new(rule, what, Attempt::Hello(Box::new(edit), Vec::new()), expected)
    }

    /// The client sends `frames` after its handshake.
    pub(super) fn then(mut self, frames: impl Into<Vec<u8>>) -> Self {
        if let Attempt::Hello(_, packets) = &mut self.attempt {
            packets.push(Sent::new(Level::OneRtt, frames));
        }
        self
    }

    /// litequic answers `answer` instead, because of `reason`.
    pub(super) fn instead(self, answer: Answer, reason: &'static str) -> Self {
        Self { instead: Some((answer, reason)), ..self }
    }

    /// What is to come.
    pub(super) fn awaited(&self) -> Answer {
        self.instead.map_or(self.expected, |(answer, _)| answer)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(code) => write!(f, "transport error {code:#x}"),
            Self::Http3(code) => write!(f, "HTTP/3 error {code:#x}"),
            Self::Stream(code) => write!(f, "stream error {code:#x}"),
            Self::Served => f.write_str("served"),
            Self::Silence => f.write_str("silence"),
        }
    }
}
