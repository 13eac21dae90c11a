//! TCP between two whole hosts in virtual time.

use std::net::SocketAddr;
use std::sync::Arc;

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_stack::counters::CounterId;
use plumb_stack::host::IpHost;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::{
    ListenerId, Received, TcpCounts, TcpEvent, TcpId, TcpSocketError, TcpState,
};
use plumb_wire::machine::Medium;

use crate::lan::{address, check, end, lan};
use crate::virtual_link::VirtualLink;

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

/// A client and a server that listens at port 80 of both families.
pub struct TcpWorld {
    pub link: VirtualLink<IpHost>,
    pub config: Arc<TcpConfig>,
}

impl TcpWorld {
    pub fn new(medium: Medium, offloads: bool, seed: Seed) -> Self {
        Self { link: lan(2, medium, offloads, seed), config: Arc::default() }
    }

    pub fn listen(&mut self, v6: bool, backlog: usize) -> ListenerId {
        let config = Arc::clone(&self.config);
        self.link.machines[SERVER].tcp_listen(end(v6, 2, 80), backlog, config).unwrap()
    }

    pub fn connect(&mut self, v6: bool) -> TcpId {
        let (local, config) = (SocketAddr::new(address(v6, 1), 0), Arc::clone(&self.config));
        let opened = self.link.with(CLIENT, |host, now, pool| {
            host.tcp_connect(now, local, end(v6, 2, 80), config, pool)
        });
        opened.unwrap()
    }

    /// A connection that is open at both ends.
    pub fn open(&mut self, v6: bool, listener: ListenerId) -> (TcpId, TcpId) {
        let client = self.connect(v6);
        self.link.run(Span::from_ms(1));
        let server = self.link.machines[SERVER].tcp_accept(listener).expect("it was accepted");
        assert_eq!(self.state(CLIENT, client), Some(TcpState::Established));
        (client, server)
    }

    pub fn state(&self, host: usize, id: TcpId) -> Option<TcpState> {
        self.link.machines[host].tcp_state(id)
    }

    pub fn counts(&self, host: usize) -> TcpCounts {
        self.link.machines[host].tcp_counts()
    }

    pub fn count(&self, host: usize, counter: CounterId) -> u64 {
        self.link.machines[host].counters().value(counter)
    }

    pub fn close(&mut self, host: usize, id: TcpId) {
        self.link.with(host, |host, now, _| host.tcp_close(now, id));
    }

    /// Everything that has arrived at a connection, and whether that is all.
    fn read(&mut self, host: usize, id: TcpId, into: &mut Vec<u8>) -> bool {
        loop {
            let received = self.link.with(host, |host, now, _| {
                host.tcp_receive_with(now, id, |bytes| {
                    into.extend(bytes);
                    bytes.len()
                })
            });
            match received.unwrap() {
                Received::Data(_) => {}
                Received::Empty => return false,
                Received::End => return true,
            }
        }
    }

    fn events(&mut self, host: usize) -> Vec<TcpEvent> {
        std::iter::from_fn(|| self.link.machines[host].poll_tcp_event()).collect()
    }

    /// Sends `data` and closes that direction, while the other end reads it.
    pub fn transfer(&mut self, sender: (usize, TcpId), receiver: (usize, TcpId), data: &[u8]) {
        let received = self.carry(sender, receiver, data, true);
        assert!(received == data, "{} of {} bytes arrived", received.len(), data.len());
    }

    /// Sends `data`, while the other end reads it; both stay open.
    pub fn transfer_some(&mut self, sender: (usize, TcpId), receiver: (usize, TcpId), data: &[u8]) {
        let received = self.carry(sender, receiver, data, false);
        assert!(received == data, "{} of {} bytes arrived", received.len(), data.len());
    }

    fn carry(
        &mut self,
        (from, sender): (usize, TcpId),
        (to, receiver): (usize, TcpId),
        data: &[u8],
        ends: bool,
    ) -> Vec<u8> {
        let (mut sent, mut received, mut is_shut) = (0, Vec::new(), false);
        while !self.read(to, receiver, &mut received) && (ends || received.len() < data.len()) {
            let rest = &data[sent..];
            if !rest.is_empty() {
                let taken = self.link.with(from, |host, now, _| host.tcp_send(now, sender, rest));
                sent += taken.unwrap();
            }
            if ends && sent == data.len() && !std::mem::replace(&mut is_shut, true) {
                self.link.with(from, |host, now, _| host.tcp_shutdown(now, sender)).unwrap();
            }
            let later = self.link.now() + Span::from_secs(60);
            assert!(self.link.step(later), "something happens");
        }
        received
    }

    /// Memory of a connection's buffers, in bytes.
    pub fn memory(&self, host: usize, id: TcpId) -> usize {
        self.link.machines[host].tcp_info(id).unwrap().memory
    }
}

pub fn bytes(len: usize) -> Vec<u8> {
    (0_u32..).map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).take(len).collect()
}

#[test]
fn stream_arrives_both_ways_and_everything_is_freed() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        for (v6, offloads) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut world = TcpWorld::new(medium, offloads, Seed(1));
            let listener = world.listen(v6, 8);
            let (client, server) = world.open(v6, listener);
            world.transfer((CLIENT, client), (SERVER, server), &bytes(1_000_000));
            assert_eq!(world.state(SERVER, server), Some(TcpState::CloseWait));
            world.transfer((SERVER, server), (CLIENT, client), &bytes(100_000));
            world.close(CLIENT, client);
            world.close(SERVER, server);
            world.link.run(Span::from_ms(1));
            assert_eq!(world.counts(CLIENT), TcpCounts { time_wait: 1, ..TcpCounts::default() });
            assert_eq!(world.counts(SERVER), TcpCounts { listeners: 1, ..TcpCounts::default() });
            assert!(world.link.settle(Span::from_secs(120)), "a closed connection is quiet");
            assert_eq!(world.counts(CLIENT), TcpCounts::default());
            check(&world.link, "a stream both ways");
        }
    }
}

// MUST-12.
#[test]
fn application_is_told_of_each_change_once() {
    let mut world = TcpWorld::new(Medium::Ethernet, false, Seed(2));
    let listener = world.listen(false, 8);
    let (client, server) = world.open(false, listener);
    assert_eq!(world.events(CLIENT), [TcpEvent::Writable(client)]);
    assert_eq!(world.events(SERVER), [TcpEvent::Acceptable(listener)]);
    for _ in 0..2 {
        world.link.with(CLIENT, |host, now, _| host.tcp_send(now, client, b"data")).unwrap();
        world.link.run(Span::from_ms(50));
    }
    assert_eq!(world.events(SERVER), [TcpEvent::Readable(server)]);
    world.close(CLIENT, client);
    world.link.run(Span::from_ms(50));
    assert_eq!(world.events(SERVER), [TcpEvent::Readable(server)]);
    assert!(world.read(SERVER, server, &mut Vec::new()));
    world.link.with(SERVER, |host, now, _| host.tcp_shutdown(now, server)).unwrap();
    world.link.run(Span::from_ms(50));
    assert_eq!(world.events(SERVER), [TcpEvent::Readable(server), TcpEvent::Closed(server)]);
    assert_eq!(world.events(CLIENT), []);
    world.close(SERVER, server);
    assert_eq!(world.counts(SERVER).connections, 0);
    assert!(world.link.settle(Span::from_secs(120)));
    check(&world.link, "events");
}

#[test]
fn connections_beyond_the_backlog_open_once_there_is_room() {
    let mut world = TcpWorld::new(Medium::Ethernet, false, Seed(3));
    let listener = world.listen(false, 2);
    let mut clients = vec![world.connect(false)];
    world.link.run(Span::from_ms(500));
    // Of these, one fills the queue; the other's handshake is not completed.
    clients.extend([world.connect(false), world.connect(false)]);
    world.link.run(Span::from_ms(500));
    // And this one's is not begun.
    clients.push(world.connect(false));
    world.link.run(Span::from_ms(500));
    let expected = TcpCounts { connections: 2, listeners: 1, half_open: 1, time_wait: 0 };
    assert_eq!(world.counts(SERVER), expected);
    assert_eq!(world.count(SERVER, CounterId::TcpAcceptQueueFull), 2);
    let mut accepted = Vec::new();
    for _ in 0..20 {
        accepted.extend(std::iter::from_fn(|| world.link.machines[SERVER].tcp_accept(listener)));
        world.link.run(Span::from_secs(1));
    }
    assert_eq!(accepted.len(), 4, "all were served");
    for client in clients {
        assert_eq!(world.state(CLIENT, client), Some(TcpState::Established));
    }
}

/// Opens and closes connections from as many ports as there are, the server first: its side is in TIME-WAIT when the port comes round
/// again, and lets the new connection have it.
#[test]
fn ends_are_used_again_and_again_and_nothing_is_left_behind() {
    for (v6, timestamps) in [(false, true), (true, false)] {
        let mut world = TcpWorld::new(Medium::Ip, false, Seed(4));
        world.config = Arc::new(TcpConfig { timestamps, ..TcpConfig::default() });
        let listener = world.listen(v6, 8);
        for number in 0..50_000 {
            let client = world.connect(v6);
            world.link.run(Span::from_us(50));
            let server = world.link.machines[SERVER].tcp_accept(listener).expect("accepted");
            world.close(SERVER, server);
            world.link.run(Span::from_us(50));
            world.close(CLIENT, client);
            world.link.run(Span::from_us(50));
            assert_eq!(world.counts(CLIENT), TcpCounts::default(), "connection {number}");
            assert_eq!(world.counts(SERVER).connections, 0, "connection {number}");
        }
        assert_eq!(world.counts(SERVER).time_wait, 16_384, "one for each port");
        assert!(world.link.settle(Span::from_secs(120)));
        assert_eq!(world.counts(SERVER), TcpCounts { listeners: 1, ..TcpCounts::default() });
        world.events(CLIENT);
        check(&world.link, "many connections");
    }
}

// MUST-10.
#[test]
fn simultaneous_opens_meet_in_one_connection() {
    for v6 in [false, true] {
        let mut world = TcpWorld::new(Medium::Ip, false, Seed(5));
        let ends = [end(v6, 1, 500), end(v6, 2, 600)];
        let ids =
            [(CLIENT, ends[0], ends[1]), (SERVER, ends[1], ends[0])].map(|(host, ours, theirs)| {
                let config = Arc::clone(&world.config);
                let opened = world.link.with(host, |host, now, pool| {
                    host.tcp_connect(now, ours, theirs, config, pool)
                });
                opened.unwrap()
            });
        world.link.run(Span::from_ms(10));
        for (host, id) in ids.into_iter().enumerate() {
            assert_eq!(world.state(host, id), Some(TcpState::Established));
        }
        world.transfer((CLIENT, ids[0]), (SERVER, ids[1]), &bytes(10_000));
        world.transfer((SERVER, ids[1]), (CLIENT, ids[0]), &bytes(10_000));
        world.close(CLIENT, ids[0]);
        world.close(SERVER, ids[1]);
        assert!(world.link.settle(Span::from_secs(200)));
        for host in [CLIENT, SERVER] {
            assert_eq!(world.counts(host), TcpCounts::default());
        }
        check(&world.link, "a simultaneous open");
    }
}

#[test]
fn connection_to_a_closed_port_is_refused_and_to_nobody_times_out() {
    for v6 in [false, true] {
        let mut world = TcpWorld::new(Medium::Ethernet, false, Seed(6));
        let refused = world.connect(v6);
        world.link.run(Span::from_ms(10));
        let error = world.link.machines[CLIENT].tcp_error(refused);
        assert_eq!(error, Some(TcpSocketError::Refused));
        let config = Arc::clone(&world.config);
        let (any, absent) = (SocketAddr::new(address(v6, 1), 0), end(v6, 9, 80));
        let opened = world
            .link
            .with(CLIENT, |host, now, pool| host.tcp_connect(now, any, absent, config, pool));
        let lost = opened.unwrap();
        assert!(world.link.settle(Span::from_secs(300)));
        assert_eq!(world.link.machines[CLIENT].tcp_error(lost), Some(TcpSocketError::TimedOut));
        for id in [refused, lost] {
            assert_eq!(world.state(CLIENT, id), Some(TcpState::Closed));
            world.close(CLIENT, id);
        }
        assert_eq!(world.counts(CLIENT), TcpCounts::default());
        check(&world.link, "attempts in vain");
    }
}

#[test]
fn close_with_unread_data_resets_the_connection() {
    for v6 in [false, true] {
        let mut world = TcpWorld::new(Medium::Ip, false, Seed(7));
        let listener = world.listen(v6, 8);
        let (client, server) = world.open(v6, listener);
        world.link.with(CLIENT, |host, now, _| host.tcp_send(now, client, b"unread")).unwrap();
        world.link.run(Span::from_ms(10));
        world.close(SERVER, server);
        world.link.run(Span::from_ms(10));
        let error = world.link.machines[CLIENT].tcp_error(client);
        assert_eq!(error, Some(TcpSocketError::Reset));
        let sent = world.link.with(CLIENT, |host, now, _| host.tcp_send(now, client, b"more"));
        assert_eq!(sent, Err(TcpSocketError::Reset));
        world.close(CLIENT, client);
        assert_eq!(world.counts(CLIENT).connections + world.counts(SERVER).connections, 0);
        assert!(world.link.settle(Span::from_secs(120)));
        check(&world.link, "a close with unread data");
    }
}

#[test]
fn application_is_told_when_a_full_buffer_has_room_again() {
    let mut world = TcpWorld::new(Medium::Ip, false, Seed(8));
    let listener = world.listen(true, 8);
    let (client, server) = world.open(true, listener);
    world.events(CLIENT);
    let data = bytes(2_000_000);
    let mut sent = 0;
    let mut received = Vec::new();
    while sent < data.len() {
        let rest = &data[sent..];
        sent += world.link.with(CLIENT, |host, now, _| host.tcp_send(now, client, rest)).unwrap();
        let expected = if sent < data.len() { vec![TcpEvent::Writable(client)] } else { vec![] };
        assert_eq!(world.events(CLIENT), [], "not before there is room");
        world.link.run(Span::from_secs(1));
        world.read(SERVER, server, &mut received);
        world.link.run(Span::from_secs(1));
        assert_eq!(world.events(CLIENT), expected, "{sent} bytes sent");
    }
    world.close(CLIENT, client);
    world.link.run(Span::from_secs(1));
    assert!(world.read(SERVER, server, &mut received) && received == data);
    assert_eq!(world.events(CLIENT), [], "a connection that was closed is forgotten");
}
