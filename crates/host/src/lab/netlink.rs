//! A connection to the kernel's routing tables: one request, one answer.
//!
//! Left out: which requests there are (`super::link`, `super::address`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::{netlink, socket};

use super::LabError;
use super::message::{self, Message, Request, attributes, messages, number32};

/// Flags of a request (linux/netlink.h).
pub(super) const REQUEST: u16 = 1;
pub(super) const ACKNOWLEDGE: u16 = 4;
/// NLM_F_ROOT and NLM_F_MATCH: the whole table.
pub(super) const DUMP: u16 = 0x300;
pub(super) const REPLACE: u16 = 0x100;
pub(super) const EXCLUSIVE: u16 = 0x200;
pub(super) const CREATE: u16 = 0x400;

/// Kinds that every family shares.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// The largest datagram of an answer: a dump fills at most 32 KiB (net/netlink/af_netlink.c).
const ANSWER_MAX: usize = 64 << 10;

/// A connection to the routing tables of one network namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// To those of the namespace that this thread is in.
    ///
    /// # Errors
    /// The kernel has no rtnetlink, or a filter refuses it.
    pub fn open() -> Result<Self, LabError> {
        let socket = netlink::route_socket()
            .map_err(|error| LabError::refused("open a routing socket", error))?;
        // Without the kernel's words errors still have their numbers.
        netlink::explain_errors(socket.as_fd()).ok();
        Ok(Self { socket, sequence: 0, buffer: vec![0; ANSWER_MAX] })
    }

    /// Asks for a change and waits until it is made.
    pub(super) fn change(
        &mut self,
        what: impl Into<String>,
        request: Request,
    ) -> Result<(), LabError> {
        self.exchange(what, request, |_| ()).map(drop)
    }

    /// Asks a question; what `read` makes of each message of the answer.
    pub(super) fn exchange<T>(
        &mut self,
        what: impl Into<String>,
        request: Request,
        mut read: impl FnMut(Message<'_>) -> T,
    ) -> Result<Vec<T>, LabError> {
        self.sequence += 1;
        let mut answers = Vec::new();
        let outcome = self.talk(&request.finish(self.sequence), |message| {
            answers.push(read(message));
        });
        match outcome {
            Ok(()) => Ok(answers),
            Err((source, said)) => Err(LabError::Refused { what: what.into(), source, said }),
        }
    }

    fn talk(
        &mut self,
        request: &[u8],
        mut read: impl FnMut(Message<'_>),
    ) -> Result<(), (io::Error, String)> {
        let plain = |error| (error, String::new());
        socket::send(self.socket.as_fd(), request).map_err(plain)?;
        loop {
            let len = match socket::receive(self.socket.as_fd(), &mut self.buffer, true) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(plain(error)),
            };
            for message in messages(&self.buffer[..len]) {
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    ERROR | DONE => return verdict(message),
                    _ => read(message),
                }
            }
        }
    }
}

/// What the last message of an answer says: an error number, 0 for success, and perhaps words.
fn verdict(message: Message<'_>) -> Result<(), (io::Error, String)> {
    /// NLM_F_CAPPED: the request is not repeated in full.
    const CAPPED: u16 = 0x100;
    /// NLM_F_ACK_TLVS: attributes follow.
    const ATTRIBUTES: u16 = 0x200;
    /// NLMSGERR_ATTR_MSG.
    const WORDS: u16 = 1;
    let code = number32(message.body, 0).map_or(0, u32::cast_signed);
    if code == 0 {
        return Ok(());
    }
    let repeated = match message.kind {
        DONE => 0,
        _ if message.flags & CAPPED != 0 => message::HEADER,
        _ => number32(message.body, 4)
            .and_then(|len| usize::try_from(len).ok())
            .map_or(message::HEADER, |len| len.next_multiple_of(4)),
    };
    let said =
        if message.flags & ATTRIBUTES == 0 { None } else { message.body.get(4 + repeated..) };
    let said = said.into_iter().flat_map(attributes).find(|(kind, _)| *kind == WORDS);
    let error = io::Error::from_raw_os_error(code.saturating_neg());
    Err((error, said.map_or_else(String::new, |(_, words)| message::text(words))))
}
