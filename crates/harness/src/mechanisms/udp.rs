//! UDP over loopback, between two namespaces or to another host, IPv4 and IPv6.
//!
//! A message that fits one datagram is sent bare. A longer one is sent in parts, each behind a
//! header of its own; a message of which a part is lost never completes, which is what the
//! experiments about large messages count.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use plumb_base::seed::{RandomStream, Seed};
use plumb_sys::fd;
use plumb_sys::socket::{self, IntOption};
use rand::Rng as _;

use super::unix::set_buffers;
use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, EndpointLocation, IoResultExt,
    LossMarker, MessageOrMarker, PeerHandover, PeerWatchdog, ReadinessWaiter,
};
use crate::report::LaunchFault;
use crate::spec::SocketOptions;

/// 65,535 less the IPv4 header of 20 and the UDP header of 8 (RFC 768, RFC 791 §3.1).
const DATAGRAM_MAX_IPV4: usize = 65_507;
/// 65,535 less the UDP header of 8: IPv6 does not count its own (RFC 8200 §3).
const DATAGRAM_MAX_IPV6: usize = 65_527;

/// IP_MTU_DISCOVER: don't-fragment clear, and set whatever is known about the path (ip(7)).
const PMTUDISC_DONT: i32 = 0;
const PMTUDISC_PROBE: i32 = 3;

/// UDP over IPv4 or IPv6.
pub(crate) struct UdpChannel<const IPV6: bool>;

impl<const IPV6: bool> UdpChannel<IPV6> {
    const DATAGRAM_MAX: usize = if IPV6 { DATAGRAM_MAX_IPV6 } else { DATAGRAM_MAX_IPV4 };
}

impl<const IPV6: bool> ChannelMechanism for UdpChannel<IPV6> {
    type Local = UdpEnd;
    type Peer = UdpEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let (here, there) = match setup.location {
            EndpointLocation::RemoteHost(host) => (host.open(setup, IPV6)?, None),
            location => {
                let (here, there) = connect_datagrams(location, IPV6)?;
                (here.into(), Some(there.into()))
            }
        };
        for fd in there.iter().chain([&here]) {
            set_datagram_options(&setup.channel.options, fd)?;
        }
        let buffer =
            socket::option(here.as_fd(), IntOption::ReceiveBuffer).attempt("read SO_RCVBUF")?;
        let mut handover = PeerHandover::of(Vec::from_iter(there));
        handover.facts.push(("rcvbuf", buffer.to_string()));
        Ok((UdpEnd::new(setup, here, Self::DATAGRAM_MAX)?, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let [fd] = handover.take()?;
        UdpEnd::new(setup, fd, Self::DATAGRAM_MAX)
    }
}

/// Sets a launch's options on a socket.
pub(crate) fn set_datagram_options(
    options: &SocketOptions,
    fd: &OwnedFd,
) -> Result<(), LaunchFault> {
    if let Some(allowed) = options.fragments {
        let discover = if allowed { PMTUDISC_DONT } else { PMTUDISC_PROBE };
        socket::set_option(fd.as_fd(), IntOption::MtuDiscover, discover)
            .attempt("set IP_MTU_DISCOVER")?;
    }
    set_buffers(options, [fd])
}

/// Two sockets on the near and the far side, each connected to the other.
pub(crate) fn connect_datagrams(
    ground: &EndpointLocation,
    ipv6: bool,
) -> Result<(UdpSocket, UdpSocket), LaunchFault> {
    let at = ground.far_address(ipv6)?;
    let there = ground.in_far(|| UdpSocket::bind(at))?.attempt("bind the far UDP socket")?;
    let address = there.local_addr().attempt("read the far socket's address")?;
    let unspecified: IpAddr =
        if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let here = ground.in_near(|| UdpSocket::bind(SocketAddr::new(unspecified, 0)))?;
    let here = here.attempt("bind the near UDP socket")?;
    // Connecting gives it the address that its datagrams come from.
    here.connect(address).attempt("connect the near UDP socket")?;
    let own = here.local_addr().attempt("read the near socket's address")?;
    there.connect(own).attempt("connect the far UDP socket")?;
    Ok((here, there))
}

/// Bytes before the body of each part: message number, part number, number of parts.
const PART_HEADER_LEN: usize = 8;
/// Bytes of a datagram that is a mark, not a message: these eight, then the two numbers.
const MARKER_LEN: usize = 24;
const MARKER_MAGIC: [u8; 8] = [0xF0, 0x9F, 0x97, 0x9C, b'p', b'l', b'm', b'b'];

/// One end of a connected pair of UDP sockets.
#[derive(Debug)]
pub(crate) struct UdpEnd {
    fd: OwnedFd,
    waiter: ReadinessWaiter,
    watch: PeerWatchdog,
    datagram_max: usize,
    loss_ppm: u32,
    random: RandomStream,
    message_number: u32,
    /// The message being put together, and its parts so far.
    reassembly: Option<(u32, Vec<bool>)>,
    dropped_on_purpose: u64,
    datagrams: u64,
    drops_before: u32,
}

impl UdpEnd {
    /// Over a socket that is connected already, whatever to.
    pub(crate) fn over(setup: &ChannelSetup<'_>, fd: OwnedFd) -> Result<Self, LaunchFault> {
        Self::new(setup, fd, DATAGRAM_MAX_IPV4)
    }

    fn new(setup: &ChannelSetup<'_>, fd: OwnedFd, limit: usize) -> Result<Self, LaunchFault> {
        let options = &setup.channel.options;
        let wanted =
            options.datagram_max.and_then(|max| usize::try_from(max).ok()).unwrap_or(limit);
        let waiter = ReadinessWaiter::new(setup.wake(), fd.as_fd())
            .attempt("watch the socket with epoll")?;
        Ok(Self {
            fd,
            waiter,
            watch: setup.watchdog.clone(),
            datagram_max: wanted.clamp(PART_HEADER_LEN + 1, limit),
            loss_ppm: options.loss_ppm,
            random: Seed(setup.seed).stream(&format!("udp loss {}", std::process::id())),
            message_number: 0,
            reassembly: None,
            dropped_on_purpose: 0,
            datagrams: 0,
            drops_before: 0,
        })
    }

    #[inline]
    fn is_dropped(&mut self) -> bool {
        let dropped = self.loss_ppm > 0 && self.random.next_u32() % 1_000_000 < self.loss_ppm;
        self.dropped_on_purpose += u64::from(dropped);
        dropped
    }

    /// Sends one datagram, or drops it on purpose.
    #[inline]
    fn send_datagram(&mut self, header: &[u8], body: &[u8]) -> Result<(), ChannelError> {
        if self.is_dropped() {
            return Ok(());
        }
        self.watch.begin();
        let fd = self.fd.as_fd();
        self.watch.retry(|| match header {
            [] => socket::send(fd, body),
            _ => socket::send_parts(fd, header, body),
        })?;
        self.datagrams += 1;
        Ok(())
    }

    fn send_in_parts(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.message_number = self.message_number.wrapping_add(1);
        let body_max = self.datagram_max - PART_HEADER_LEN;
        let parts = u16::try_from(message.len().div_ceil(body_max))
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        for (index, body) in (0..parts).zip(message.chunks(body_max)) {
            let mut header = [0; PART_HEADER_LEN];
            header[..4].copy_from_slice(&self.message_number.to_le_bytes());
            header[4..6].copy_from_slice(&index.to_le_bytes());
            header[6..].copy_from_slice(&parts.to_le_bytes());
            self.send_datagram(&header, body)?;
        }
        Ok(())
    }

    /// Receives one datagram: header bytes, if the message comes in parts, then body bytes.
    #[inline]
    fn receive_datagram(
        &mut self,
        header: &mut [u8],
        body: &mut [u8],
    ) -> Result<usize, ChannelError> {
        loop {
            self.waiter.ready(self.fd.as_fd(), &mut self.watch)?;
            let sleep = self.waiter.may_sleep();
            let result = if header.is_empty() {
                socket::receive(self.fd.as_fd(), body, sleep)
            } else {
                socket::receive_parts(self.fd.as_fd(), header, body, sleep)
            };
            match result {
                Ok(n) => return Ok(n),
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
    }

    /// Receives parts until a message is whole; parts of older messages are dropped.
    fn receive_in_parts(
        &mut self,
        buffer: &mut [u8],
        len: usize,
    ) -> Result<MessageOrMarker, ChannelError> {
        let body_max = self.datagram_max - PART_HEADER_LEN;
        let parts = len.div_ceil(body_max);
        loop {
            // In order is the common case: the next part lands where it belongs at once.
            let expected = self
                .reassembly
                .as_ref()
                .map_or(0, |(_, have)| have.iter().position(|got| !got).unwrap_or(0));
            let mut header = [0; PART_HEADER_LEN];
            let offset = expected * body_max;
            let n = self.receive_datagram(&mut header, &mut buffer[offset..])?;
            if n == MARKER_LEN && header == MARKER_MAGIC {
                return Ok(MessageOrMarker::Marker(read_mark(&buffer[offset..])));
            }
            let number = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let index = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let announced = usize::from(u16::from_le_bytes([header[6], header[7]]));
            if n < PART_HEADER_LEN || announced != parts || index >= parts {
                continue;
            }
            match &self.reassembly {
                Some((current, _)) if *current == number => {}
                Some((current, _)) if current.wrapping_sub(number) < u32::MAX / 2 => continue,
                _ => self.reassembly = Some((number, vec![false; parts])),
            }
            let body = offset..offset + (n - PART_HEADER_LEN);
            if index * body_max != offset {
                buffer.copy_within(body, index * body_max);
            }
            if let Some((_, have)) = &mut self.reassembly {
                have[index] = true;
                if have.iter().all(|&got| got) {
                    self.reassembly = None;
                    return Ok(MessageOrMarker::Message);
                }
            }
        }
    }
}

fn read_mark(bytes: &[u8]) -> LossMarker {
    let word = |at: usize| bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    LossMarker { value: word(0), at: word(8) }
}

impl ChannelEnd for UdpEnd {
    const LOSSY: bool = true;

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        if message.len() <= self.datagram_max {
            self.send_datagram(&[], message)
        } else {
            self.send_in_parts(message)
        }
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.watch.begin();
        loop {
            if self.receive_any(buffer, len)? == MessageOrMarker::Message {
                return Ok(());
            }
        }
    }

    #[inline]
    fn receive_any(
        &mut self,
        buffer: &mut [u8],
        len: usize,
    ) -> Result<MessageOrMarker, ChannelError> {
        if len > self.datagram_max {
            return self.receive_in_parts(buffer, len);
        }
        loop {
            let n = self.receive_datagram(&mut [], buffer)?;
            if n == MARKER_LEN && buffer[..8] == MARKER_MAGIC {
                return Ok(MessageOrMarker::Marker(read_mark(&buffer[8..])));
            }
            // Anything else of another length belongs to an earlier task.
            if n == len {
                return Ok(MessageOrMarker::Message);
            }
        }
    }

    fn send_marker(&mut self, mark: LossMarker) -> Result<(), ChannelError> {
        let mut numbers = [0; 16];
        numbers[..8].copy_from_slice(&mark.value.to_le_bytes());
        numbers[8..].copy_from_slice(&mark.at.to_le_bytes());
        // Marks are how plumb counts; only messages are dropped on purpose.
        let loss = std::mem::take(&mut self.loss_ppm);
        let result = self.send_datagram(&MARKER_MAGIC, &numbers);
        self.loss_ppm = loss;
        result
    }

    fn wait_readable(&mut self, timeout_ms: i32) -> Result<bool, ChannelError> {
        self.watch.retry(|| fd::poll_readable(self.fd.as_fd(), timeout_ms))
    }

    fn drain(&mut self) -> Result<(), ChannelError> {
        self.reassembly = None;
        let mut byte = [0; 1];
        loop {
            match socket::receive(self.fd.as_fd(), &mut byte, false) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => self.watch.retry_or_fail(error)?,
            }
        }
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let drops = socket::receive_drops(self.fd.as_fd()).unwrap_or(self.drops_before);
        let new_drops = drops.wrapping_sub(std::mem::replace(&mut self.drops_before, drops));
        vec![
            ("datagrams", std::mem::take(&mut self.datagrams)),
            ("dropped_on_purpose", std::mem::take(&mut self.dropped_on_purpose)),
            ("dropped_receive_buffer", u64::from(new_drops)),
        ]
    }
}
