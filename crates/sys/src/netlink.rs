//! rtnetlink(7): a socket for one request at a time, and the bytes of its messages.
//!
//! All numbers are in the byte order of the machine, and every part begins at a multiple of four. Written by hand,
//! because a dozen messages are needed and the published crates for the whole family take long to compile.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::socket;

/// NLM_F_REQUEST.
pub const REQUEST: u16 = 1;
/// NLM_F_ACK.
pub const ACKNOWLEDGE: u16 = 4;
/// NLM_F_DUMP: the whole table.
pub const DUMP: u16 = 0x300;
/// NLM_F_REPLACE.
pub const REPLACE: u16 = 0x100;
/// NLM_F_EXCL.
pub const EXCLUSIVE: u16 = 0x200;
/// NLM_F_CREATE.
pub const CREATE: u16 = 0x400;

/// NLMSG_ERROR and NLMSG_DONE.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// The largest datagram of an answer: a dump fills at most 32 KiB (net/netlink/af_netlink.c).
const REPLY_LEN_MAX: usize = 64 << 10;
/// Bytes of a struct nlmsghdr.
const HEADER: usize = 16;

/// Why a request failed.
#[derive(Debug)]
pub struct NetlinkError {
    /// The error.
    pub source: io::Error,
    /// The kernel's explanation; may be empty.
    pub message: String,
}

impl From<io::Error> for NetlinkError {
    fn from(source: io::Error) -> Self {
        Self { source, message: String::new() }
    }
}

/// A connection to the routing tables of the network namespace in which it was opened.
#[derive(Debug)]
pub struct RouteSocket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl RouteSocket {
    /// In the namespace of this thread; `timeout` is for each part of an answer.
    pub fn open(timeout: Option<Duration>) -> io::Result<Self> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        // Protocol 0 is NETLINK_ROUTE.
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout)?;
        // Explanations of errors, since Linux 4.12; without them errors still have their numbers.
        crate::set_option(socket.as_fd(), (libc::SOL_NETLINK, libc::NETLINK_EXT_ACK), &1_i32).ok();
        Ok(Self { socket, sequence: 0, buffer: vec![0; REPLY_LEN_MAX] })
    }

    /// Sends a request and passes each message of the answer to `read`, up to the acknowledgement or the dump's end.
    ///
    /// The request has [`ACKNOWLEDGE`] or [`DUMP`] among its flags.
    pub fn query(
        &mut self,
        request: NetlinkRequest,
        mut read: impl FnMut(NetlinkMessage<'_>),
    ) -> Result<(), NetlinkError> {
        self.sequence += 1;
        socket::send(self.socket.as_fd(), &request.finish(self.sequence))?;
        loop {
            let len = match socket::receive(self.socket.as_fd(), &mut self.buffer, true) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            for message in messages(&self.buffer[..len]) {
                match message.kind {
                    _ if message.sequence != self.sequence => {}
                    ERROR | DONE => return parse_ack(message),
                    _ => read(message),
                }
            }
        }
    }
}

/// Reads the error number of the last message of an answer, 0 for success, and its explanation.
fn parse_ack(message: NetlinkMessage<'_>) -> Result<(), NetlinkError> {
    /// NLM_F_CAPPED: the request is not repeated in full.
    const CAPPED: u16 = 0x100;
    /// NLM_F_ACK_TLVS: attributes follow.
    const ATTRIBUTES: u16 = 0x200;
    /// NLMSGERR_ATTR_MSG.
    const EXPLANATION: u16 = 1;
    let code = number32(message.body, 0).map_or(0, u32::cast_signed);
    if code == 0 {
        return Ok(());
    }
    let repeated = match message.kind {
        DONE => 0,
        _ if message.flags & CAPPED != 0 => HEADER,
        _ => number32(message.body, 4)
            .and_then(|len| usize::try_from(len).ok())
            .map_or(HEADER, |len| len.next_multiple_of(4)),
    };
    let rest = message.body.get(4 + repeated..).filter(|_| message.flags & ATTRIBUTES != 0);
    Err(NetlinkError {
        source: io::Error::from_raw_os_error(code.saturating_neg()),
        message: rest.and_then(|rest| attribute(rest, EXPLANATION)).map_or_else(String::new, text),
    })
}

/// A request under construction.
#[derive(Clone, Debug)]
pub struct NetlinkRequest {
    bytes: Vec<u8>,
}

impl NetlinkRequest {
    /// A message of a kind with flags and its fixed part.
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        let mut request = Self { bytes };
        request.raw(fixed);
        request
    }

    /// Appends an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.nest(kind, |request| request.bytes.extend_from_slice(value))
    }

    /// Appends an attribute of text, NUL-terminated.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.nest(kind, |request| {
            request.bytes.extend_from_slice(value.as_bytes());
            request.bytes.push(0);
        })
    }

    /// Appends an attribute that holds what `inside` appends.
    pub fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        inside(self);
        let len = u16::try_from(self.bytes.len() - start).expect("no request is near 64 KiB");
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.pad()
    }

    /// Appends bytes as they are: the fixed part of a message inside an attribute.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self.pad()
    }

    fn pad(&mut self) -> &mut Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).expect("no request is near 4 GiB");
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// One message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetlinkMessage<'a> {
    /// Its type.
    pub kind: u16,
    flags: u16,
    sequence: u32,
    /// Everything after the header.
    pub body: &'a [u8],
}

/// The messages of one datagram, up to the first that is cut short.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = NetlinkMessage<'_>> {
    std::iter::from_fn(move || {
        let len = usize::try_from(number32(bytes, 0)?).ok()?;
        let message = NetlinkMessage {
            kind: number16(bytes, 4)?,
            flags: number16(bytes, 6)?,
            sequence: number32(bytes, 8)?,
            body: bytes.get(HEADER..len)?,
        };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes in a run of bytes, as (kind without its flags, value), up to the first that is cut short.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// NLA_F_NESTED and NLA_F_NET_BYTEORDER.
    const FLAGS: u16 = 0xc000;
    std::iter::from_fn(move || {
        let len = usize::from(number16(bytes, 0)?);
        let kind = number16(bytes, 2)? & !FLAGS;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of a kind.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// The four bytes at an offset.
pub fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// The eight bytes at an offset.
pub fn number64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// NUL-terminated text.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back_with_its_padding() {
        let mut request = NetlinkRequest::new(16, 5, &[1, 2, 3, 4]);
        request.text(3, "lo").nest(18, |nest| {
            nest.attribute(1, &[7; 5]);
            nest.attribute(2, &[]);
        });
        let bytes = request.finish(9);
        assert_eq!(bytes.len() % 4, 0);
        let all: Vec<_> = messages(&bytes).collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].kind, all[0].flags, all[0].sequence), (16, 5, 9));
        let outer: Vec<_> = attributes(&all[0].body[4..]).collect();
        assert_eq!(outer[0], (3, b"lo\0".as_slice()));
        let inner: Vec<_> = attributes(outer[1].1).collect();
        assert_eq!(inner, vec![(1, [7_u8; 5].as_slice()), (2, [].as_slice())]);
    }

    proptest! {
        #[test]
        fn readers_end_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            prop_assert!(messages(&bytes).count() <= bytes.len() / HEADER);
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4);
        }
    }
}
