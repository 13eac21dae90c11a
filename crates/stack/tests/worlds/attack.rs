//! A server under attack, in virtual time: its memory stays bounded, and honest clients are served meanwhile.
//!
//! `PLUMB_TCP_ATTACK=1000000 cargo test --release -p plumb-stack --test worlds attack -- --nocapture` makes each attack that long and prints
//! what it came to.

use std::net::Ipv4Addr;
use std::sync::Arc;

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::{Instant, Span};
use plumb_stack::counters::CounterId;
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::tcp::config::{BufferLimits, KeepAlive, TcpConfig};
use plumb_stack::tcp::{TcpCounts, TcpId, TcpOpenError, TcpState};
use plumb_wire::compose::PacketTemplate;
use plumb_wire::ipv4::Ipv4Packet;
use plumb_wire::machine::{Machine as _, Medium};
use plumb_wire::packet::{Pool, PoolConfig};
use plumb_wire::tcp::{TcpFlags, TcpHeader, TcpSegment};
use rand::RngExt as _;

use crate::lan::check;
use crate::tcp::{CLIENT, SERVER, TcpWorld, bytes};
use crate::virtual_link::{LinkFaults, PORT};

/// Packets of an attack.
fn attack_len() -> u32 {
    let given = std::env::var("PLUMB_TCP_ATTACK").ok();
    given.map_or(20_000, |text| text.parse().expect("PLUMB_TCP_ATTACK is a number of packets"))
}

const SERVER_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const BACKLOG: usize = 64;

/// A segment to the server's port 80.
fn segment(
    from: Ipv4Addr,
    port: u16,
    (seq, ack): (u32, u32),
    flags: TcpFlags,
    payload: &[u8],
) -> Vec<u8> {
    let header = TcpHeader {
        source_port: port,
        destination_port: 80,
        seq,
        ack,
        flags,
        window: 65_535,
        ..TcpHeader::default()
    };
    PacketTemplate::new(from, SERVER_IP).tcp(header, payload)
}

/// Somebody's address and port.
fn somebody(random: &mut RandomStream) -> (Ipv4Addr, u16) {
    (Ipv4Addr::new(192, 0, 2, random.random_range(3..255)), random.random_range(1_024..=65_535))
}

/// Resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn syn_flood_keeps_nobody_out() {
    let mut world = TcpWorld::new(Medium::Ip, false, Seed(20));
    let listener = world.listen(false, BACKLOG);
    let mut random = Seed(20).stream("flood");
    let before = resident_kib();
    let (mut served, mut slowest) = (0, Span::ZERO);
    for number in 0..attack_len() {
        let (from, port) = somebody(&mut random);
        assert!(world.link.inject(&segment(from, port, (random.random(), 0), TcpFlags::SYN, b"")));
        world.link.run(Span::from_us(20));
        assert!(world.counts(SERVER).half_open <= BACKLOG);
        if number % 1_000 == 999 {
            let begun = world.link.now();
            let (client, server) = world.open(false, listener);
            world.transfer((CLIENT, client), (SERVER, server), &bytes(20_000));
            slowest = slowest.max(world.link.now().saturating_since(begun));
            world.close(SERVER, server);
            world.close(CLIENT, client);
            world.link.run(Span::from_ms(1));
            served += 1;
        }
    }
    assert_eq!(served, attack_len() / 1_000);
    assert!(slowest < Span::from_ms(10), "no honest client waits for a timeout: {slowest}");
    let cookies = world.count(SERVER, CounterId::TcpCookieSent);
    println!(
        "{} SYNs: {cookies} cookies sent, {served} of {served} honest clients served, the slowest in {slowest}; {} KiB more memory",
        attack_len(),
        resident_kib().saturating_sub(before)
    );
    assert!(cookies > u64::from(attack_len()) / 2);
    assert_eq!(world.counts(SERVER).connections, 0);
    assert!(world.link.settle(Span::from_secs(600)));
    assert_eq!(world.counts(SERVER), TcpCounts { listeners: 1, ..TcpCounts::default() });
}

/// The attacker knows both ends, but not where the connection is.
#[test]
fn blind_segments_do_not_break_a_connection() {
    for timestamps in [true, false] {
        let (sent, seconds) = attack_blindly(timestamps);
        println!(
            "{} blind segments in {seconds:.1} s, timestamps {timestamps}: {sent} challenge ACKs, none believed",
            attack_len()
        );
    }
}

/// What has no timestamp is dropped where both ends use them; else the attack is up to RFC 5961. Challenge ACKs sent, and seconds.
fn attack_blindly(timestamps: bool) -> (u64, f64) {
    let mut world = TcpWorld::new(Medium::Ip, false, Seed(21));
    world.config = Arc::new(TcpConfig { timestamps, ..TcpConfig::default() });
    let listener = world.listen(false, BACKLOG);
    let (client, server) = world.open(false, listener);
    world.transfer_some((CLIENT, client), (SERVER, server), &bytes(100_000));
    let port = world.link.machines[CLIENT].tcp_local(client).unwrap().port();
    let mut random = Seed(21).stream("blind");
    let challenges = |world: &TcpWorld| world.count(SERVER, CounterId::TcpChallengeSent);
    let begun = world.link.now();
    for number in 0..attack_len() {
        let flags = [TcpFlags::RST, TcpFlags::SYN, TcpFlags::RST | TcpFlags::ACK, TcpFlags::ACK];
        let flags = flags[number as usize % flags.len()];
        let numbers = (random.random(), random.random());
        let payload: &[u8] = if flags == TcpFlags::ACK { b"forged" } else { b"" };
        assert!(world.link.inject(&segment(CLIENT_IP, port, numbers, flags, payload)));
        world.link.run(Span::from_us(20));
    }
    let seconds = world.link.now().saturating_since(begun).as_secs_f64();
    let sent = challenges(&world);
    assert!(timestamps || sent > 0);
    // RFC 5961 §7: 1,000 a second here.
    assert!(sent as f64 <= 1_000.0 * (seconds + 2.0), "{sent} in {seconds} s");
    for (host, id) in [(CLIENT, client), (SERVER, server)] {
        assert_eq!(world.state(host, id), Some(TcpState::Established));
    }
    world.transfer((CLIENT, client), (SERVER, server), &bytes(100_000));
    (sent, seconds)
}

#[test]
fn flood_of_tiny_segments_takes_no_more_than_the_buffer() {
    const BUFFER: u32 = 64 << 10;
    let mut world = TcpWorld::new(Medium::Ip, false, Seed(22));
    world.config = Arc::new(TcpConfig {
        nagle: false,
        receive_buffer: BufferLimits::fixed(BUFFER),
        ..TcpConfig::default()
    });
    let listener = world.listen(false, BACKLOG);
    let (attacker, victim) = world.open(false, listener);
    let (client, server) = world.open(false, listener);
    let mut most = 0;
    for number in 0..attack_len() {
        // The server never reads what comes; its window closes after 64 KiB.
        let sent = world.link.with(CLIENT, |host, now, _| host.tcp_send(now, attacker, b"x"));
        assert!(sent.is_ok());
        world.link.run(Span::from_us(30));
        most = most.max(world.memory(SERVER, victim));
        if number % 5_000 == 4_999 {
            world.transfer_some((CLIENT, client), (SERVER, server), &bytes(20_000));
        }
    }
    println!("{} segments of one byte, nothing read: {most} bytes of memory at most", attack_len());
    let send_buffer_initial = 65_536;
    assert!(most <= BUFFER as usize + send_buffer_initial, "{most} bytes");
}

/// A peer that sends every other byte of the window, each in a segment of its own, again and again.
#[test]
fn ranges_out_of_order_are_bounded() {
    let mut host = IpHost::new(HostConfig::default(), Seed(23));
    host.add_interface(&InterfaceConfig::ip(1_500).with_address(SERVER_IP, 24)).unwrap();
    let mut pool = Pool::new(PoolConfig::default());
    let mut now = Instant::after_origin(Span::from_secs(1));
    let listener = host.tcp_listen((SERVER_IP, 80).into(), BACKLOG, TcpConfig::default()).unwrap();
    let peer = Ipv4Addr::new(192, 0, 2, 9);
    let mut exchange = |host: &mut IpHost, now: Instant, bytes: &[u8]| -> Vec<Vec<u8>> {
        let mut batch = vec![pool.packet_of(bytes).unwrap()];
        host.handle_packets(now, PORT, &mut batch, &mut pool);
        host.poll_packets(now, PORT, &mut batch, 64, &mut pool);
        let answers = batch.iter().map(|packet| pool.bytes(packet).to_vec()).collect();
        pool.free_all(&mut batch);
        answers
    };
    let syn_ack = exchange(&mut host, now, &segment(peer, 7, (999, 0), TcpFlags::SYN, b""));
    let packet = Ipv4Packet::parse(&syn_ack[0]).unwrap();
    let ours = TcpSegment::parse(packet.payload()).unwrap().seq().wrapping_add(1);
    exchange(&mut host, now, &segment(peer, 7, (1_000, ours), TcpFlags::ACK, b""));
    let id: TcpId = host.tcp_accept(listener).expect("the handshake is complete");
    let memory = host.tcp_info(id).unwrap().memory;
    let mut answered = 0;
    for number in 0..attack_len() {
        let at = 1_002 + 2 * (number % 15_000);
        answered +=
            exchange(&mut host, now, &segment(peer, 7, (at, ours), TcpFlags::ACK, b"x")).len();
        now += Span::from_us(20);
    }
    let info = host.tcp_info(id).unwrap();
    println!(
        "{} segments out of order: {} bytes of memory after {memory}, {answered} answers",
        attack_len(),
        info.memory
    );
    assert!(info.memory <= 128 << 10, "{} bytes", info.memory);
    assert_eq!(info.readable, 0);
    // Data that the ranges had no room for is accepted when it comes in order.
    for at in 0..30_100 {
        exchange(&mut host, now, &segment(peer, 7, (1_000 + at, ours), TcpFlags::ACK, b"y"));
    }
    assert_eq!(host.tcp_info(id).unwrap().readable, 30_100);
}

/// As many connections as asked for, opened and closed; none of them leaves anything behind.
#[test]
fn opens_and_closes_leave_no_memory_behind() {
    let mut world = TcpWorld::new(Medium::Ip, false, Seed(24));
    let listener = world.listen(false, BACKLOG);
    let mut after_first = 0;
    let count = attack_len();
    for number in 0..count {
        let client = world.connect(false);
        world.link.run(Span::from_us(50));
        let server = world.link.machines[SERVER].tcp_accept(listener).expect("accepted");
        world.close(SERVER, server);
        world.link.run(Span::from_us(50));
        world.close(CLIENT, client);
        world.link.run(Span::from_us(50));
        while world.link.machines[CLIENT].poll_tcp_event().is_some() {}
        while world.link.machines[SERVER].poll_tcp_event().is_some() {}
        // By then every port has its record in TIME-WAIT.
        if number == count - count / 10 {
            after_first = resident_kib();
        }
    }
    assert_eq!(world.counts(CLIENT), TcpCounts::default());
    assert_eq!(world.counts(SERVER).connections, 0);
    println!(
        "{count} connections opened and closed: {} KiB resident, {} KiB more than at nine tenths of them",
        resident_kib(),
        resident_kib().saturating_sub(after_first)
    );
    assert!(world.link.settle(Span::from_secs(120)));
    check(&world.link, "many connections");
}

/// What both ends have done when the path is cut for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    SynSent,
    SynReceived,
    Established,
    DataUnderWay,
    FinWait1,
    FinWait2,
    Closing,
    LastAck,
    TimeWait,
}

impl Progress {
    const ALL: [Self; 9] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::DataUnderWay,
        Self::FinWait1,
        Self::FinWait2,
        Self::Closing,
        Self::LastAck,
        Self::TimeWait,
    ];

    /// Both ends of a connection that is so far.
    fn reach(self, world: &mut TcpWorld) -> (TcpId, Option<TcpId>) {
        let listener = world.listen(false, BACKLOG);
        let begun = world.link.now();
        let client = world.connect(false);
        match self {
            Self::SynSent => {}
            // The SYN arrives, its answer does not.
            Self::SynReceived => assert!(world.link.step(begun + Span::from_ms(1))),
            _ => world.link.run(Span::from_ms(1)),
        }
        let server = world.link.machines[SERVER].tcp_accept(listener);
        if self == Self::DataUnderWay {
            let data = bytes(50_000);
            let sent = world.link.with(CLIENT, |host, now, _| host.tcp_send(now, client, &data));
            assert!(sent.unwrap() > 0);
        }
        if matches!(
            self,
            Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::LastAck | Self::TimeWait
        ) {
            world.close(CLIENT, client);
        }
        if matches!(self, Self::FinWait2 | Self::LastAck | Self::TimeWait) {
            world.link.run(Span::from_ms(1));
        }
        if matches!(self, Self::Closing | Self::LastAck | Self::TimeWait) {
            world.close(SERVER, server.unwrap());
        }
        match self {
            Self::Closing => assert!(world.link.step(begun + Span::from_secs(1))),
            Self::TimeWait => {
                world.link.run(Span::from_ms(1));
                assert_eq!(world.counts(CLIENT).time_wait, 1);
            }
            _ => {}
        }
        (client, server)
    }
}

/// Whatever had been said before: both ends give the connection up in bounded time and keep nothing.
#[test]
fn peer_that_vanishes_leaves_nothing_in_any_state() {
    for progress in Progress::ALL {
        let mut world = TcpWorld::new(Medium::Ip, false, Seed(25));
        let keep_alive = KeepAlive { idle: Span::from_secs(60), ..KeepAlive::default() };
        world.config = Arc::new(TcpConfig { keep_alive: Some(keep_alive), ..TcpConfig::default() });
        let (client, server) = progress.reach(&mut world);
        world.link.set_faults(LinkFaults { loss: 1.0, ..LinkFaults::default() });
        // Linux's 15 retransmissions of data take a quarter of an hour, keep-alive a little longer.
        world.link.run(Span::from_secs(3_600));
        for (host, id) in [(CLIENT, Some(client)), (SERVER, server)] {
            if let Some(id) = id {
                let state = world.state(host, id);
                assert!(matches!(state, None | Some(TcpState::Closed)), "{progress:?}: {state:?}");
                world.close(host, id);
            }
        }
        assert_eq!(world.counts(CLIENT), TcpCounts::default(), "{progress:?}");
        let left = TcpCounts { listeners: 1, ..TcpCounts::default() };
        assert_eq!(world.counts(SERVER), left, "{progress:?}");
        assert!(world.link.settle(Span::from_secs(600)), "{progress:?}: an idle host is quiet");
    }
}

#[test]
fn last_port_is_used_and_the_lack_of_another_named() {
    let mut world = TcpWorld::new(Medium::Ip, false, Seed(26));
    let listener = world.listen(false, BACKLOG);
    let mut opened = 0_u32;
    let error = loop {
        let config = Arc::clone(&world.config);
        let (local, remote) = ((CLIENT_IP, 0).into(), (SERVER_IP, 80).into());
        let result = world
            .link
            .with(CLIENT, |host, now, pool| host.tcp_connect(now, local, remote, config, pool));
        match result {
            Ok(_) => opened += 1,
            Err(error) => break error,
        }
        world.link.run(Span::from_us(50));
        assert!(world.link.machines[SERVER].tcp_accept(listener).is_some());
    };
    assert_eq!(error, TcpOpenError::NoPort(CLIENT_IP.into()));
    assert_eq!(opened, 16_384, "49152 to 65535");
}
