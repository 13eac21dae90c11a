//! Transfers over plumb's own TCP: in virtual time over a link, in real time in memory, and over a TAP with Linux.

use std::net::{Ipv4Addr, SocketAddr};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_harness::mirror::mirror_process::NamedSamples;
use plumb_harness::program_task::ProgramRun;
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::{
    PacketBufferPolicy, TransferDefect, TransferPath, TransferSpec, TransferTcp,
};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::tcp::config::{BufferLimits, TcpConfig, TcpDefects};
use plumb_stack::tcp::congestion::CongestionChoice;
use plumb_stack::tcp::{ListenerId, TcpId, TcpInfo};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::packet::Pool;

mod memory;
mod packet_buffers;
pub(crate) mod tap;
pub(crate) mod virtual_hosts;
mod virtual_path;

pub(crate) use packet_buffers::{BUFFER_LEN, BUFFERS};

/// Carries out the transfers of a block.
///
/// # Errors
/// When this host lacks what they need, or they do not come to an end.
pub fn run(spec: &TransferSpec, run: &ProgramRun) -> Result<NamedSamples, LaunchFault> {
    match &spec.path {
        TransferPath::Virtual(link) => virtual_path::run(spec, link, Seed(run.seed)),
        TransferPath::Memory => memory::run(spec, run),
        TransferPath::Tap { sends, loss_ppm } => tap::run(spec, (*sends, *loss_ppm), run),
    }
}

/// Where the receiver listens.
const PORT: u16 = 5_001;
/// MTU of Ethernet.
const MTU: u32 = 1_500;
/// Window of a TCP from before 1988, in bytes, and its buffers.
pub(crate) const EARLY_WINDOW: u32 = 16 << 10;

/// The address of an end: 0 opens the connection and sends, 1 listens and receives.
fn address(end: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, u8::try_from(end).unwrap_or(0) + 1)
}

/// A host at one end of an Ethernet.
fn host(end: usize, seed: Seed) -> IpHost {
    let mut host = IpHost::new(HostConfig::default(), seed.derive(&format!("host {end}")));
    let mac = MacAddr([2, 0, 0, 0, 0, u8::try_from(end).unwrap_or(0) + 1]);
    let interface = InterfaceConfig::ethernet(mac, MTU).with_address(address(end), 24);
    host.add_interface(&interface).expect("one interface with one address");
    host
}

/// Has one host listen, and the other open a connection to it.
fn open(
    hosts: &mut [IpHost; 2],
    now: Instant,
    config: &TcpConfig,
    pool: &Pool,
) -> (TcpId, ListenerId) {
    let to = SocketAddr::from((address(1), PORT));
    let listener = hosts[1].tcp_listen(to, 1, config.clone()).expect("a free port");
    let any = SocketAddr::from((address(0), 0));
    let id = hosts[0].tcp_connect(now, any, to, config.clone(), pool).expect("a path to the other");
    (id, listener)
}

/// How TCP works at an end.
fn tcp_config(tcp: &TransferTcp) -> TcpConfig {
    let has = |defect| tcp.defects.contains(&defect);
    let defects = TcpDefects {
        fixed_rto: tcp.fixed_rto_ns.map(Span::from_ns),
        retransmit_all: has(TransferDefect::RetransmitAll),
        discard_out_of_order: has(TransferDefect::DiscardOutOfOrder),
        measure_retransmissions: has(TransferDefect::MeasureRetransmissions),
        silly_window: has(TransferDefect::SillyWindow),
        timeout_only: tcp.is_early || has(TransferDefect::TimeoutOnly),
        duplicate_acks: has(TransferDefect::DuplicateAcks),
    };
    let buffer = |limits: BufferLimits| {
        if tcp.is_early { BufferLimits::fixed(EARLY_WINDOW) } else { limits }
    };
    let mut config = TcpConfig { nagle: false, defects, ..TcpConfig::default() };
    config.send_buffer = buffer(config.send_buffer);
    config.receive_buffer =
        tcp.receive_buffer.map_or_else(|| buffer(config.receive_buffer), BufferLimits::fixed);
    if tcp.is_early {
        config.congestion = CongestionChoice::Fixed { bytes: EARLY_WINDOW.into() };
        (config.sack, config.timestamps, config.window_scaling) = (false, false, false);
    }
    if let Some(packet) = tcp.packet {
        // The packet's length shall be what it says, whatever options TCP has.
        config.timestamps = false;
        config.mss_max = Some(packet.saturating_sub(40));
    }
    if tcp.prompt_acks {
        let acks = &mut config.personality.delayed_ack;
        (acks.min, acks.max, acks.segments) = (Span::ZERO, Span::ZERO, 1);
    }
    config
}

/// What a sender's figures say about its segments: the share that was sent again, and the mean payload of the others.
fn segment_samples(info: &TcpInfo, bytes: u64) -> [(&'static str, f64); 2] {
    let sent = info.sent.segments.max(1);
    let first = sent.saturating_sub(info.sent.retransmits).max(1);
    [
        ("retransmitted", info.sent.retransmits as f64 / sent as f64),
        ("payload", bytes as f64 / first as f64),
    ]
}

/// Adds samples to those of their response.
fn add_samples(to: &mut NamedSamples, response: &str, values: impl IntoIterator<Item = f64>) {
    if let Some((_, known)) = to.iter_mut().find(|(name, _)| name == response) {
        known.extend(values);
    } else {
        to.push((response.to_owned(), values.into_iter().collect()));
    }
}

/// Whether a host keeps packets until they are read.
fn keeps_packets(policy: PacketBufferPolicy) -> bool {
    policy != PacketBufferPolicy::Ring
}
