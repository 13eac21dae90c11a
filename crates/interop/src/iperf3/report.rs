//! A test as iperf3 prints it with `--json`: the same members with the same meaning, and plumb's own
//! beside them under `schema` and `plumb`.
//!
//! Whatever reads iperf3's documents reads these.

use plumb_base::units::Rate;
use plumb_result::iperf3::{
    Iperf3Connected, Iperf3Counts, Iperf3CpuUtilization, Iperf3Document, Iperf3End,
    Iperf3EndStream, Iperf3Endpoint, Iperf3IntervalReport, Iperf3Overlap, Iperf3Side, Iperf3Start,
    Iperf3StreamCounts, Iperf3Summary, Iperf3TestStart, Iperf3Timestamp, SCHEMA,
};
use serde_json::Value;

use super::VERSION;
use super::parameters::{Iperf3Direction, Iperf3Transport};
use super::record::{Iperf3Interval, Iperf3Role, Iperf3Stream, Iperf3Test};
use super::results::{Iperf3Results, Iperf3Totals};

/// One stream with what is known about each of its sides.
struct Iperf3StreamSides<'a> {
    record: &'a Iperf3Stream,
    sent: Option<Iperf3Totals>,
    received: Option<Iperf3Totals>,
}

impl<'a> Iperf3StreamSides<'a> {
    fn of(record: &'a Iperf3Stream, remote: Option<&Iperf3Results>) -> Self {
        let own = record.totals();
        let theirs = remote.and_then(|remote| remote.stream(record.id)).map(|theirs| {
            // The first versions do not say how long it took: then it took as long as here.
            let unsaid = theirs.seconds <= 0.0;
            Iperf3Totals { seconds: if unsaid { own.seconds } else { theirs.seconds }, ..*theirs }
        });
        let (sent, received) = if record.sends { (Some(own), theirs) } else { (theirs, Some(own)) };
        Self { record, sent, received }
    }
}

/// The document of a test, from the side that recorded it.
pub fn document(test: &Iperf3Test) -> Iperf3Document {
    let streams = test.streams();
    let remote = test.remote_results.as_ref();
    let sides: Vec<Iperf3StreamSides<'_>> =
        streams.iter().map(|record| Iperf3StreamSides::of(record, remote)).collect();
    let server_report = remote.and_then(|remote| remote.report.clone());
    let is_text = server_report.as_ref().is_some_and(Value::is_string);
    Iperf3Document {
        schema: SCHEMA,
        title: test.parameters.title.clone(),
        extra_data: test.parameters.extra.clone(),
        start: start(test, streams),
        intervals: intervals(test, streams),
        end: end(test, &sides),
        server_output_json: server_report.clone().filter(|_| !is_text),
        server_output_text: server_report.filter(|_| is_text),
        error: test.error.clone(),
        plumb: counts(test),
    }
}

/// What plumb says beyond iperf3: this side's counts, and the other's where it is plumb as well.
pub fn counts(test: &Iperf3Test) -> Iperf3Counts {
    let record = test.record.as_ref();
    let is_udp = test.parameters.protocol == Iperf3Transport::Udp;
    let stream = |stream: &Iperf3Stream| {
        let receives_datagrams = is_udp && !stream.sends;
        let count = &stream.count;
        Iperf3StreamCounts {
            id: stream.id,
            socket: stream.socket,
            sender: stream.sends,
            bytes: count.bytes,
            drained: (!stream.sends).then_some(stream.drained),
            packets: is_udp.then_some(count.packets),
            lost: receives_datagrams.then(|| u64::try_from(count.lost).unwrap_or(0)),
            out_of_order: receives_datagrams.then_some(count.out_of_order),
            duplicates: receives_datagrams.then_some(count.duplicates),
            trouble: stream.error.clone(),
        }
    };
    let [cpu_user_s, cpu_system_s] = record.map_or([0.0; 2], |record| record.cpu_s);
    let is_server = test.role == Iperf3Role::Server;
    let theirs = test.remote_results.as_ref().and_then(|remote| remote.extra.clone());
    Iperf3Counts {
        version: VERSION.to_owned(),
        role: if is_server { Iperf3Side::Server } else { Iperf3Side::Client },
        streams: test.streams().iter().map(stream).collect(),
        cpu_user_s,
        cpu_system_s,
        intervals_truncated: record.is_some_and(|record| record.truncated),
        overlap: is_server.then(|| Iperf3Overlap {
            tests: u32::try_from(test.overlap.tests).unwrap_or(u32::MAX),
            seconds: test.overlap.duration.as_secs_f64(),
        }),
        remote: theirs.and_then(|theirs| serde_json::from_value(theirs).ok()),
    }
}

fn start(test: &Iperf3Test, streams: &[Iperf3Stream]) -> Iperf3Start {
    let parameters = &test.parameters;
    let is_tcp = parameters.protocol == Iperf3Transport::Tcp;
    let place = Iperf3Endpoint {
        host: match &test.role {
            Iperf3Role::Client { host } => host.clone(),
            Iperf3Role::Server => test.remote.ip().to_string(),
        },
        port: test.remote.port(),
    };
    let is_client = test.role != Iperf3Role::Server;
    let connected = |stream: &Iperf3Stream| Iperf3Connected {
        socket: stream.socket,
        local_host: stream.local.ip().to_string(),
        local_port: stream.local.port(),
        remote_host: stream.remote.ip().to_string(),
        remote_port: stream.remote.port(),
    };
    let bits = |rate: Option<Rate>| rate.map_or(0, Rate::bits_per_second);
    let (duration, bytes, blocks) = parameters.length_limit.numbers();
    Iperf3Start {
        connected: streams.iter().map(connected).collect(),
        version: VERSION.to_owned(),
        system_info: system_info(),
        timestamp: Iperf3Timestamp {
            time: rfc7231_date(test.unix_ms / 1_000),
            timesecs: test.unix_ms / 1_000,
            timemillisecs: test.unix_ms,
        },
        connecting_to: Some(place.clone()).filter(|_| is_client),
        accepted_connection: Some(place).filter(|_| !is_client),
        cookie: test.cookie.clone(),
        tcp_mss: parameters.mss.filter(|_| is_tcp),
        tcp_mss_default: Some(test.segment).filter(|_| is_tcp && parameters.mss.is_none()),
        target_bitrate: bits(parameters.bitrate),
        fq_rate: bits(parameters.pacing),
        sock_bufsize: parameters.window.unwrap_or(0),
        sndbuf_actual: test.buffers[0],
        rcvbuf_actual: test.buffers[1],
        test_start: Iperf3TestStart {
            protocol: parameters.protocol.name(),
            num_streams: parameters.streams,
            blksize: parameters.length,
            omit: parameters.omit_seconds,
            duration,
            bytes,
            blocks,
            reverse: u8::from(parameters.direction == Iperf3Direction::Reverse),
            tos: parameters.type_of_service,
            target_bitrate: bits(parameters.bitrate),
            bidir: u8::from(parameters.direction == Iperf3Direction::Both),
            fqrate: bits(parameters.pacing),
            interval: test.interval.as_secs_f64(),
            gso: 0,
            gro: 0,
        },
    }
}

/// The kernel's name, the machine's and the kernel's versions, as uname(1) has them.
fn system_info() -> String {
    let of = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    let names = ["ostype", "hostname", "osrelease", "version"];
    let found = names.iter().filter_map(|name| of(name).ok()).map(|text| text.trim().to_owned());
    let mut words: Vec<String> = found.collect();
    words.push(std::env::consts::ARCH.to_owned());
    words.join(" ")
}

/// Seconds since 1970 as a date (RFC 7231). The calendar is Gregorian throughout, its days counted from
/// a March 1st, so that the leap day comes last.
fn rfc7231_date(unix_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year + u64::from(month >= 10);
    let name = |names: &[&'static str], index: u64| {
        usize::try_from(index).ok().and_then(|index| names.get(index).copied()).unwrap_or("")
    };
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let (weekday, month) = (name(&DAYS, days % 7), name(&MONTHS, month));
    format!("{weekday}, {date:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Whether a stream belongs to the direction that is reported first: of both, the client's.
fn is_primary_direction(test: &Iperf3Test, stream: &Iperf3Stream) -> bool {
    let client = test.role != Iperf3Role::Server;
    test.parameters.direction != Iperf3Direction::Both || stream.sends == client
}

fn intervals(test: &Iperf3Test, streams: &[Iperf3Stream]) -> Vec<Iperf3IntervalReport> {
    let count = streams.iter().map(|stream| stream.intervals.len()).max().unwrap_or(0);
    let both = test.parameters.direction == Iperf3Direction::Both;
    let protocol = test.parameters.protocol;
    (0..count)
        .map(|index| {
            let at = |main: bool| -> Vec<(&Iperf3Stream, &Iperf3Interval)> {
                let these =
                    streams.iter().filter(|stream| is_primary_direction(test, stream) == main);
                these.filter_map(|s| Some((s, s.intervals.get(index)?))).collect()
            };
            let all = streams.iter().filter_map(|s| Some((s, s.intervals.get(index)?)));
            Iperf3IntervalReport {
                streams: all
                    .map(|(stream, interval)| interval_figures(protocol, stream, interval))
                    .collect(),
                sum: interval_sum(protocol, &at(true)),
                sum_bidir_reverse: both.then(|| interval_sum(protocol, &at(false))),
            }
        })
        .collect()
}

fn interval_figures(
    protocol: Iperf3Transport,
    stream: &Iperf3Stream,
    interval: &Iperf3Interval,
) -> Iperf3Summary {
    let (start, end) = (interval.start.as_secs_f64(), interval.end.as_secs_f64());
    let count = &interval.count;
    let mut figures = Iperf3Summary::of(start, end, count.bytes, stream.sends);
    figures.socket = Some(stream.socket);
    figures.omitted = Some(interval.omitted);
    match (protocol, stream.sends) {
        (Iperf3Transport::Udp, true) => figures.packets = Some(count.packets),
        (Iperf3Transport::Udp, false) => {
            figures = figures.with_datagrams(count.packets, count.lost, count.jitter_s);
        }
        (Iperf3Transport::Tcp, _) => {}
    }
    if let Some(facts) = interval.tcp_info {
        figures.retransmits = interval.retransmits;
        figures.snd_cwnd = Some(u64::from(facts.snd_cwnd) * u64::from(facts.snd_mss));
        figures.snd_wnd = Some(facts.snd_wnd.into());
        figures.rtt = Some(facts.rtt_us.into());
        figures.rttvar = Some(facts.rttvar_us.into());
        figures.pmtu = Some(facts.pmtu.into());
        figures.reorder = Some(facts.reordering.into());
    }
    figures
}

fn interval_sum(
    protocol: Iperf3Transport,
    streams: &[(&Iperf3Stream, &Iperf3Interval)],
) -> Iperf3Summary {
    let Some((stream, first)) = streams.first() else { return Iperf3Summary::default() };
    let (start, end) = (first.start.as_secs_f64(), first.end.as_secs_f64());
    let counts = || streams.iter().map(|(_, interval)| &interval.count);
    let bytes = counts().map(|count| count.bytes).sum();
    let mut sum = Iperf3Summary::of(start, end, bytes, stream.sends);
    sum.omitted = Some(first.omitted);
    let packets = counts().map(|count| count.packets).sum();
    match (protocol, stream.sends) {
        (Iperf3Transport::Udp, true) => sum.packets = Some(packets),
        (Iperf3Transport::Udp, false) => {
            let jitter = counts().map(|count| count.jitter_s).sum::<f64>() / streams.len() as f64;
            sum = sum.with_datagrams(packets, counts().map(|count| count.lost).sum(), jitter);
        }
        (Iperf3Transport::Tcp, true) => {
            sum.retransmits =
                Some(streams.iter().filter_map(|(_, interval)| interval.retransmits).sum());
        }
        (Iperf3Transport::Tcp, false) => {}
    }
    sum
}

fn end(test: &Iperf3Test, sides: &[Iperf3StreamSides<'_>]) -> Iperf3End {
    let record = test.record.as_ref();
    let remote = test.remote_results.as_ref();
    let of = |main: bool| -> Vec<&Iperf3StreamSides<'_>> {
        sides.iter().filter(|side| is_primary_direction(test, side.record) == main).collect()
    };
    let (main, other) = (of(true), of(false));
    let both = test.parameters.direction == Iperf3Direction::Both;
    let is_udp = test.parameters.protocol == Iperf3Transport::Udp;
    let protocol = test.parameters.protocol;
    let [host_total, host_user, host_system] = record.map_or([0.0; 3], |r| r.cpu_percent);
    let [remote_total, remote_user, remote_system] = remote.map_or([0.0; 3], |r| r.cpu_percent);
    let own = record.and_then(|record| record.congestion.clone());
    let theirs = remote.and_then(|remote| remote.congestion.clone());
    let sends = main.first().is_some_and(|side| side.record.sends);
    let (sender, receiver) = if sends { (own, theirs) } else { (theirs, own) };
    Iperf3End {
        streams: sides.iter().map(|side| end_stream(protocol, side)).collect(),
        sum: is_udp.then(|| datagrams(&main)),
        sum_sent: sent(protocol, &main),
        sum_received: received(protocol, &main),
        sum_bidir_reverse: (both && is_udp).then(|| datagrams(&other)),
        sum_sent_bidir_reverse: both.then(|| sent(protocol, &other)),
        sum_received_bidir_reverse: both.then(|| received(protocol, &other)),
        cpu_utilization_percent: Iperf3CpuUtilization {
            host_total,
            host_user,
            host_system,
            remote_total,
            remote_user,
            remote_system,
        },
        sender_tcp_congestion: sender,
        receiver_tcp_congestion: receiver,
    }
}

fn end_stream(protocol: Iperf3Transport, side: &Iperf3StreamSides<'_>) -> Iperf3EndStream {
    let record = side.record;
    let one = std::slice::from_ref(&side);
    if protocol == Iperf3Transport::Udp {
        let mut udp = datagrams(one);
        udp.socket = Some(record.socket);
        udp.out_of_order = Some(record.count.out_of_order);
        return Iperf3EndStream { udp: Some(udp), ..Iperf3EndStream::default() };
    }
    let mut sender = sent(protocol, one);
    sender.socket = Some(record.socket);
    if record.sends {
        sender.reorder = Some(record.reordering.into());
        sender.max_snd_cwnd = Some(record.congestion_window.max);
        sender.max_snd_wnd = Some(record.send_window.max);
        sender.max_rtt = Some(record.rtt_us.max);
        sender.min_rtt = Some(record.rtt_us.min);
        sender.mean_rtt = Some(record.rtt_us.mean());
    }
    let mut receiver = received(protocol, one);
    receiver.socket = Some(record.socket);
    Iperf3EndStream { sender: Some(sender), receiver: Some(receiver), udp: None }
}

/// The longest of these streams, in seconds.
fn longest(results: &[Iperf3Totals]) -> f64 {
    results.iter().map(|result| result.seconds).fold(0.0, f64::max)
}

fn sent(protocol: Iperf3Transport, sides: &[&Iperf3StreamSides<'_>]) -> Iperf3Summary {
    let results: Vec<Iperf3Totals> = sides.iter().filter_map(|side| side.sent).collect();
    let local = sides.first().is_some_and(|side| side.record.sends);
    let bytes = results.iter().map(|result| result.bytes).sum();
    let mut figures = Iperf3Summary::of(0.0, longest(&results), bytes, local);
    match protocol {
        Iperf3Transport::Tcp => {
            let resent: Vec<u64> = results.iter().filter_map(|result| result.retransmits).collect();
            figures.retransmits = (!resent.is_empty()).then(|| resent.iter().sum());
            figures
        }
        Iperf3Transport::Udp => {
            figures.sender = true;
            figures.with_datagrams(results.iter().map(|result| result.packets).sum(), 0, 0.0)
        }
    }
}

fn received(protocol: Iperf3Transport, sides: &[&Iperf3StreamSides<'_>]) -> Iperf3Summary {
    let results: Vec<Iperf3Totals> = sides.iter().filter_map(|side| side.received).collect();
    let local = sides.first().is_some_and(|side| side.record.sends);
    let bytes = results.iter().map(|result| result.bytes).sum();
    let figures = Iperf3Summary::of(0.0, longest(&results), bytes, local);
    match protocol {
        Iperf3Transport::Tcp => figures,
        Iperf3Transport::Udp => {
            let lost = results.iter().map(|result| result.errors).sum();
            let packets = results.iter().map(|result| result.packets).sum();
            let streams = results.len().max(1) as f64;
            let jitter = results.iter().map(|result| result.jitter_s).sum::<f64>() / streams;
            Iperf3Summary { sender: false, ..figures.with_datagrams(packets, lost, jitter) }
        }
    }
}

/// What was sent, with what the receiver says became of it.
fn datagrams(sides: &[&Iperf3StreamSides<'_>]) -> Iperf3Summary {
    let local = sides.first().is_some_and(|side| side.record.sends);
    let (sent, received) =
        (sent(Iperf3Transport::Udp, sides), received(Iperf3Transport::Udp, sides));
    // Where the sender's word is missing, what came is what is known.
    let known = if sent.packets > Some(0) { &sent } else { &received };
    let lost = sides.iter().filter_map(|side| lost(side)).fold(0, i64::saturating_add);
    let jitter = received.jitter_ms.unwrap_or(0.0) / 1e3;
    let figures = Iperf3Summary::of(0.0, known.end, known.bytes, local);
    figures.with_datagrams(known.packets.unwrap_or(0), lost, jitter)
}

/// Datagrams of a stream that did not come, by the receiver's word. One that nothing reached knows about no loss.
fn lost(side: &Iperf3StreamSides<'_>) -> Option<i64> {
    let (received, sent) = (side.received?, side.sent.map_or(0, |sent| sent.packets));
    if received.packets == 0 {
        return Some(i64::try_from(sent).unwrap_or(i64::MAX));
    }
    Some(received.errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_put_into_the_words_of_its_date() {
        // `date -u -d @N` says so.
        for (unix_s, words) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (1_795_316_502, "Sun, 22 Nov 2026 03:01:42 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(rfc7231_date(unix_s), words);
        }
    }
}
