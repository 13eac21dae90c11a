//! TCP of a host under test: an application that echoes, and a peer that answers nearly as it should.

use plumb_base::seed::RandomStream;
use plumb_base::time::Instant;
use plumb_stack::host::IpHost;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{ListenerId, Received, TcpCounts, TcpEvent, TcpId};
use plumb_wire::compose::{LinkTemplate, PacketTemplate};
use plumb_wire::flow::FiveTuple;
use plumb_wire::machine::Medium;
use plumb_wire::option::OptionArea;
use plumb_wire::packet::Pool;
use plumb_wire::segmentation::SegmentLayout;
use plumb_wire::tcp::{TcpFlags, TcpHeader, TcpSegment};
use rand::{Rng, RngExt};
use std::net::SocketAddr;

/// Connections of the application at once.
const OPEN_MAX: usize = 64;

/// Listens and opens connections, and sends back what it receives.
#[derive(Debug, Default)]
pub(crate) struct EchoStreams {
    listeners: Vec<ListenerId>,
    open: Vec<TcpId>,
    memory: Vec<u8>,
}

impl EchoStreams {
    /// Listens at `local`, for few connections at once.
    pub fn listen(&mut self, host: &mut IpHost, local: SocketAddr) {
        let listener = host.tcp_listen(local, 4, TcpConfig::default());
        self.listeners.push(listener.expect("nobody else listens there"));
    }

    /// Opens a connection.
    pub fn connect(&mut self, host: &mut IpHost, now: Instant, ends: [SocketAddr; 2], pool: &Pool) {
        if self.open.len() < OPEN_MAX {
            let [local, remote] = ends;
            let opened = host.tcp_connect(now, local, remote, TcpConfig::default(), pool);
            self.open.push(opened.expect("a free port, and a peer on the link"));
        }
    }

    /// Does what the host tells that can be done; once in a while a connection is ended in another way.
    pub fn handle(&mut self, host: &mut IpHost, now: Instant, stream: &mut RandomStream) {
        while let Some(event) = host.poll_tcp_event() {
            match event {
                TcpEvent::Acceptable(listener) => {
                    if self.open.len() == OPEN_MAX {
                        host.tcp_abort(now, self.open.remove(0));
                    }
                    self.open.extend(host.tcp_accept(listener));
                }
                TcpEvent::Readable(id) | TcpEvent::Writable(id) => self.echo(host, now, id),
                TcpEvent::Closed(id) => self.close(host, now, id),
            }
        }
        if stream.random_bool(0.05) && !self.open.is_empty() {
            let id = self.open[stream.random_range(0..self.open.len())];
            match stream.random_range(0..4) {
                0 => self.close(host, now, id),
                1 => {
                    self.open.retain(|open| *open != id);
                    host.tcp_abort(now, id);
                }
                2 => host.tcp_shutdown(now, id).expect("it is open"),
                // More than any window takes.
                _ => drop(host.tcp_send(now, id, &vec![7; 100_000])),
            }
        }
    }

    fn echo(&mut self, host: &mut IpHost, now: Instant, id: TcpId) {
        let memory = &mut self.memory;
        memory.clear();
        let received = host.tcp_receive_with(now, id, |bytes| {
            memory.extend_from_slice(bytes);
            bytes.len()
        });
        match received {
            // Data without room in the send buffer is lost.
            Ok(Received::Data(_)) => drop(host.tcp_send(now, id, &self.memory)),
            Ok(Received::Empty) => {}
            Ok(Received::End) | Err(_) => self.close(host, now, id),
        }
    }

    fn close(&mut self, host: &mut IpHost, now: Instant, id: TcpId) {
        self.open.retain(|open| *open != id);
        host.tcp_close(now, id);
    }

    /// Closes everything; the host ends the connections by itself.
    pub fn finish(self, host: &mut IpHost, now: Instant) {
        for id in self.open {
            host.tcp_close(now, id);
        }
        for listener in self.listeners {
            host.tcp_close_listener(now, listener);
        }
    }
}

/// Asserts that the connections of a host are bounded as its application bounds them.
///
/// Panics when they are not.
pub(crate) fn check(host: &IpHost) {
    let TcpCounts { connections, half_open, .. } = host.tcp_counts();
    // Closed ones take their time.
    assert!(connections < 50_000 && half_open <= 8, "{connections}, {half_open}");
}

/// What a peer might say to a segment of the host: mostly what it should, with something wrong now and then.
pub(crate) fn answer(
    bytes: &[u8],
    medium: Medium,
    link: Option<LinkTemplate>,
    now: Instant,
    stream: &mut RandomStream,
) -> Option<Vec<u8>> {
    let layout = SegmentLayout::of(bytes, medium).filter(SegmentLayout::is_tcp)?;
    let flow = match medium {
        Medium::Ethernet => FiveTuple::of_frame(bytes),
        Medium::Ip => FiveTuple::of_packet(bytes),
    }?;
    let heard = TcpSegment::parse(&bytes[layout.transport..]).ok()?;
    let has = |flags| heard.flags().contains(flags);
    let controls = u32::from(has(TcpFlags::SYN)) + u32::from(has(TcpFlags::FIN));
    let len = u32::try_from(heard.payload().len()).ok()? + controls;
    let is_open = has(TcpFlags::SYN) && !has(TcpFlags::ACK);
    let payload = match stream.random_range(0..4) {
        0 if !is_open => vec![stream.random(); stream.random_range(0..1_400)],
        _ => Vec::new(),
    };
    let header = TcpHeader {
        source_port: flow.destination_port,
        destination_port: flow.source_port,
        seq: if is_open { stream.next_u32() } else { blurred(heard.ack(), stream) },
        ack: blurred(heard.seq().wrapping_add(len), stream),
        flags: flags(is_open, stream),
        window: [0, 1, 500, 65_535][stream.random_range(0..4)],
        options: options(now, is_open, stream),
        ..TcpHeader::default()
    };
    let path = PacketTemplate { link, ..PacketTemplate::new(flow.destination, flow.source) };
    Some(path.tcp(header, &payload))
}

/// The number, or one that is a little or much off.
fn blurred(number: u32, stream: &mut RandomStream) -> u32 {
    match stream.random_range(0..16) {
        0 => number.wrapping_add(stream.random_range(0..3_000)),
        1 => number.wrapping_sub(stream.random_range(0..3_000)),
        2 if stream.random_bool(0.1) => stream.next_u32(),
        _ => number,
    }
}

fn flags(is_open: bool, stream: &mut RandomStream) -> TcpFlags {
    let usual = if is_open { TcpFlags::SYN | TcpFlags::ACK } else { TcpFlags::ACK };
    match stream.random_range(0..32) {
        0 => usual | TcpFlags::FIN,
        1 => usual | TcpFlags::RST,
        2 => usual | TcpFlags::SYN,
        3 => usual | TcpFlags::URG | TcpFlags::PSH,
        4 => usual | TcpFlags::ECE | TcpFlags::CWR,
        5 => TcpFlags::from_bits(u16::try_from(stream.next_u32() >> 20).expect("12 bits")),
        _ => usual,
    }
}

fn options(now: Instant, is_open: bool, stream: &mut RandomStream) -> OptionArea {
    let mut options = Vec::new();
    if is_open {
        options.extend([2, 4, 5, 180, 4, 2, 3, 3, stream.random_range(0..20), 1]);
    }
    if stream.random_bool(0.9) {
        let ms = u32::try_from((now.since_origin().as_ns() / 1_000_000) & 0xffff_ffff);
        options.extend([1, 1, 8, 10]);
        options.extend(blurred(ms.expect("masked"), stream).to_be_bytes());
        options.extend(stream.next_u32().to_be_bytes());
    }
    if !is_open && stream.random_bool(0.1) {
        options.extend([1, 1, 5, 10]);
        options.extend((0..8).map(|_| stream.random::<u8>()));
    }
    OptionArea::new(&options).expect("at most 34 bytes")
}
