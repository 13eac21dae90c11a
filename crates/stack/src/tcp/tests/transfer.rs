//! Transfers over links that behave.

use plumb_base::time::Span;

use super::pair::{CLIENT, Pair, SERVER, Weather, path};
use crate::tcp::config::{BufferLimits, TcpConfig};
use crate::tcp::congestion::CongestionChoice;
use crate::tcp::connection::{PathLimits, TcpSocketError};
use crate::tcp::info::TcpInfo;
use crate::tcp::socket::TcpState;
use crate::tcp::stream::Received;

/// The byte at a place of the stream.
pub fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// What is left to send and what has arrived of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    pub total: u64,
    pub sent: u64,
    pub received: u64,
    pub ended: bool,
    pub error: Option<TcpSocketError>,
}

/// Moves what can be moved from `from`, and shuts down when all is sent.
pub fn pump(pair: &mut Pair, from: usize, flow: &mut Flow) {
    let now = pair.now;
    if let Some(sender) = pair.ends[from].as_mut() {
        while flow.sent < flow.total {
            let len = usize::try_from(flow.total - flow.sent).unwrap().min(4_000);
            let bytes: Vec<u8> = (0..len as u64).map(|at| byte_at(flow.sent + at)).collect();
            match sender.send(now, &bytes) {
                Ok(0) => break,
                Ok(len) => flow.sent += len as u64,
                Err(error) => {
                    flow.error = Some(error);
                    break;
                }
            }
        }
        if flow.sent == flow.total && sender.state().is_synchronized() {
            sender.shutdown(now);
        }
    }
    let Some(receiver) = pair.ends[1 - from].as_mut() else { return };
    let mut out = [0; 3_000];
    loop {
        match receiver.receive(now, &mut out) {
            Ok(Received::Data(len)) => {
                for byte in &out[..len] {
                    assert_eq!(
                        *byte,
                        byte_at(flow.received),
                        "byte {} of the stream",
                        flow.received
                    );
                    flow.received += 1;
                }
            }
            Ok(Received::Empty) => break,
            Ok(Received::End) => {
                flow.ended = true;
                break;
            }
            Err(error) => {
                flow.error = Some(error);
                break;
            }
        }
    }
}

/// Runs both flows to their end; whether both were whole.
pub fn run(pair: &mut Pair, flows: &mut [Flow; 2], limit: Span) -> bool {
    pair.run_until(limit, |pair| {
        for (end, flow) in flows.iter_mut().enumerate() {
            pump(pair, end, flow);
        }
        flows.iter().all(|flow| flow.ended || flow.error.is_some())
    });
    flows.iter().all(|flow| flow.ended && flow.received == flow.total)
}

fn flows(up: u64, down: u64) -> [Flow; 2] {
    [up, down].map(|total| Flow { total, ..Flow::default() })
}

#[test]
fn both_directions_arrive_whole_and_close() {
    let mut pair = Pair::new(TcpConfig::default(), TcpConfig::default(), 1);
    let mut flows = flows(3_000_000, 1_000_000);
    assert!(run(&mut pair, &mut flows, Span::from_secs(60)), "{flows:?}");
    assert!(pair.run_until(Span::from_secs(100), |pair| {
        [CLIENT, SERVER].iter().all(|end| pair.end(*end).state() == TcpState::Closed)
    }));
    for end in [CLIENT, SERVER] {
        let info = pair.end(end).info();
        assert_eq!((info.sent.retransmits, info.sent.timeouts), (0, 0), "a clean link: {info:#?}");
    }
}

#[test]
fn bottleneck_is_filled() {
    let mut pair = Pair::new(TcpConfig::default(), TcpConfig::default(), 1);
    // 10 Mb/s, 40 ms there and back, a queue of one bandwidth-delay product.
    pair.weather = [Weather {
        delay: Span::from_ms(20),
        rate: 1_250_000,
        queue: 50_000,
        ..Weather::default()
    }; 2];
    let mut flows = flows(20_000_000, 0);
    let start = pair.now;
    assert!(run(&mut pair, &mut flows, Span::from_secs(60)), "{flows:?}");
    let seconds = (pair.now - start).as_secs_f64();
    let goodput = 20_000_000.0 / seconds / 1_250_000.0;
    assert!(goodput > 0.90, "{goodput} of the rate: {:#?}", pair.end(CLIENT).info());
}

// MUST-20.
#[test]
fn connection_to_nobody_times_out() {
    let mut pair = Pair::new(TcpConfig::default(), TcpConfig::default(), 1);
    pair.weather[CLIENT].is_cut = true;
    assert!(
        pair.run_until(Span::from_secs(600), |pair| pair.end(CLIENT).state() == TcpState::Closed)
    );
    assert_eq!(pair.end(CLIENT).error(), Some(TcpSocketError::TimedOut));
    assert_eq!(pair.sent[CLIENT], 7, "a SYN and six retransmissions");
}

/// Sends and receives so many bytes; what the sender says afterwards.
fn move_bytes(pair: &mut Pair, total: u64) -> TcpInfo {
    let (mut sent, mut received, mut out) = (0, 0, [0; 3_000]);
    let is_whole = pair.run_until(Span::from_secs(300), |pair| {
        let now = pair.now;
        let bytes = vec![7; usize::try_from(total - sent).unwrap().min(40_000)];
        sent += pair.end(CLIENT).send(now, &bytes).unwrap_or(0) as u64;
        while let Some(Ok(Received::Data(len))) =
            pair.ends[SERVER].as_mut().map(|end| end.receive(now, &mut out))
        {
            received += len as u64;
        }
        received == total
    });
    assert!(is_whole, "{received} of {total} bytes, {:#?}", pair.end(CLIENT).info());
    pair.end(CLIENT).info()
}

/// An open connection with a window of some 20 segments, so that a probe may follow another soon.
fn established(congestion: CongestionChoice) -> Pair {
    let send_buffer = BufferLimits::fixed(30_000);
    let config = TcpConfig { send_buffer, congestion, ..TcpConfig::default() };
    let mut pair = Pair::new(config, TcpConfig::default(), 1);
    let is_open = |pair: &mut Pair| pair.end(CLIENT).state() == TcpState::Established;
    assert!(pair.run_until(Span::from_secs(5), is_open));
    pair
}

/// RFC 4821 §7.7, §7.3: no ICMP tells about it.
#[test]
fn path_that_shrinks_and_grows_silently_is_followed() {
    for mtu in [1_492, 1_400, 1_300, 1_000, 600] {
        let mut pair = established(CongestionChoice::Cubic);
        assert_eq!(move_bytes(&mut pair, 100_000).path_mtu, 1_500);
        pair.weather[CLIENT].mtu = mtu;
        let shrunk = move_bytes(&mut pair, 100_000);
        assert!(shrunk.path_mtu as usize <= mtu, "{} of {mtu}", shrunk.path_mtu);
        let searched = move_bytes(&mut pair, 20_000_000);
        let found = searched.path_mtu as usize;
        assert!(found <= mtu && found + 8 > mtu, "{found} of {mtu}");
        assert_eq!(searched.sent.timeouts, shrunk.sent.timeouts, "a search needs no timeout");
        pair.weather[CLIENT].mtu = 65_535;
        pair.now += Span::from_secs(601);
        let grown = move_bytes(&mut pair, 100_000);
        assert_eq!(grown.path_mtu, 1_500);
        assert_eq!(grown.sent.retransmits, searched.sent.retransmits, "nothing was lost");
    }
}

/// RFC 4821 §7.6.2.
#[test]
fn lost_size_probe_is_repeated_in_smaller_segments_and_not_taken_for_congestion() {
    for congestion in [CongestionChoice::NewReno, CongestionChoice::Cubic] {
        let mut pair = established(congestion);
        pair.end(CLIENT).on_path(PathLimits { mtu: 1_280, ..path() });
        let before = move_bytes(&mut pair, 1_000_000);
        pair.weather[CLIENT].mtu = 1_280;
        pair.end(CLIENT).on_path(path());
        let after = move_bytes(&mut pair, 4_000_000);
        let lost = after.sent.size_probes_lost;
        assert!(lost > 0 && after.sent.size_probes - lost <= 1, "{after:#?}");
        assert_eq!(after.path_mtu, 1_280);
        assert_eq!(after.sent.retransmits, 2 * lost, "each in two segments: {after:#?}");
        assert_eq!((after.sent.recoveries, after.sent.timeouts), (0, 0));
        assert!(after.ssthresh >= before.ssthresh && after.cwnd >= before.cwnd, "{after:#?}");
    }
}

/// RFC 8201 §4, RFC 4821 §7.2: what ICMP took away comes back by a probe, without losing a whole window of packets.
#[test]
fn segments_grow_only_after_a_probe_arrived() {
    let mut pair = established(CongestionChoice::Cubic);
    pair.end(CLIENT).on_path(PathLimits { mtu: 1_280, ..path() });
    assert_eq!(move_bytes(&mut pair, 100_000).path_mtu, 1_280);
    pair.end(CLIENT).on_path(path());
    assert_eq!(pair.end(CLIENT).info().path_mtu, 1_280);
    let few = move_bytes(&mut pair, 4_000);
    assert_eq!((few.path_mtu, few.sent.size_probes), (1_280, 0), "too few bytes follow it");
    let grown = move_bytes(&mut pair, 100_000);
    assert_eq!((grown.path_mtu, grown.sent.size_probes, grown.sent.retransmits), (1_500, 1, 0));
}
