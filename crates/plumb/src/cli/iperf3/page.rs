//! A test of iperf3's protocol as people read it: a line an interval, and the totals.

use plumb_base::time::Span;
use plumb_base::units::{format_bytes, significant};
use plumb_interop::iperf3::client::Iperf3Progress;
use plumb_interop::iperf3::parameters::{Iperf3Direction, Iperf3TestLength, Iperf3Transport};
use plumb_interop::iperf3::record::{self, Iperf3Role, Iperf3Test};
use plumb_report::terminal::format_bit_rate;
use plumb_report::terminal::{TerminalStyle, TextRole};
use plumb_result::iperf3::{Iperf3Counts, Iperf3Document, Iperf3Summary};

/// Bits a second with a suitable prefix.
fn rate(bits_per_second: f64) -> String {
    format_bit_rate(bits_per_second / 8.0)
}

fn seconds(span: f64) -> String {
    format!("{span:.1} s")
}

/// What one interval brought, while the test runs.
pub fn progress(progress: &Iperf3Progress) -> String {
    let seconds = progress.interval.as_secs_f64().max(1e-9);
    let of = |bytes: u64| rate(bytes as f64 * 8.0 / seconds);
    let mut words = vec![format!("{:>6.1} s", progress.at.as_secs_f64())];
    if let Some(of) = progress.of {
        words.push(format!(" of {:.0} s", of.as_secs_f64()));
    }
    if progress.sent > 0 || progress.received == 0 {
        words.push(format!("   up {:>10}", of(progress.sent)));
    }
    if progress.received > 0 {
        words.push(format!("   down {:>10}", of(progress.received)));
    }
    if progress.omitted {
        words.push("   (not counted)".to_owned());
    }
    words.concat()
}

/// The whole test.
pub fn test(test: &Iperf3Test, report: &Iperf3Document, style: TerminalStyle) -> String {
    let mut page = String::new();
    let mut line = |indent: usize, ink: TextRole, text: &str| {
        for (index, part) in
            style.wrap(&TerminalStyle::keep_units_together(text), indent).into_iter().enumerate()
        {
            // Continuation lines are indented.
            let more = if index > 0 { "  " } else { "" };
            page += &[more, &style.paint(ink, &part), "\n"].concat();
        }
    };
    line(0, TextRole::Bold, &heading(test));
    let both = test.parameters.direction == Iperf3Direction::Both;
    let end = &report.end;
    let client_sends = test.parameters.direction != Iperf3Direction::Reverse;
    let main = if client_sends { "up" } else { "down" };
    let mut directions = vec![(main, &end.sum_sent, &end.sum_received, end.sum.as_ref())];
    if both
        && let (Some(sent), Some(received)) =
            (&end.sum_sent_bidir_reverse, &end.sum_received_bidir_reverse)
    {
        directions.push(("down", sent, received, end.sum_bidir_reverse.as_ref()));
    }
    for (name, sent, received, datagrams) in directions {
        for text in totals(name, sent, received, datagrams) {
            line(2, TextRole::Plain, &text);
        }
    }
    if test.parameters.streams > 1 {
        for text in per_stream_lines(test, report) {
            line(4, TextRole::Dim, &text);
        }
    }
    if let Some(text) = datagram_orders(&report.plumb) {
        line(2, TextRole::Plain, &text);
    }
    let cpu = &end.cpu_utilization_percent;
    let percent = |share: f64| significant(share, 3);
    let there = if test.remote_results.is_some() {
        format!(", {} % remote", percent(cpu.remote_total))
    } else {
        String::new()
    };
    line(2, TextRole::Plain, &format!("CPU: {} % local{there}", percent(cpu.host_total)));
    if let Some(rtt) = round_trips(test) {
        line(2, TextRole::Plain, &rtt);
    }
    if test.overlap.tests > 0 {
        let together = seconds(test.overlap.duration.as_secs_f64());
        let text = match test.overlap.tests {
            1 => format!("another test ran at the same time, for {together}"),
            tests => format!("{tests} other tests ran at the same time, for {together}"),
        };
        line(2, TextRole::Warn, &text);
    }
    if let Some(error) = &test.error {
        line(2, TextRole::Bad, &format!("ended early, partial result: {error}"));
    }
    page
}

fn heading(test: &Iperf3Test) -> String {
    let parameters = &test.parameters;
    let with = match &test.role {
        Iperf3Role::Client { host } if *host != test.remote.ip().to_string() => {
            format!("{host} ({})", test.remote)
        }
        Iperf3Role::Client { .. } | Iperf3Role::Server => test.remote.to_string(),
    };
    let way = match parameters.direction {
        Iperf3Direction::Forward => "up",
        Iperf3Direction::Reverse => "down",
        Iperf3Direction::Both => "each way",
    };
    let streams = match parameters.streams {
        1 => format!("1 stream {way}"),
        streams => format!("{streams} streams {way}"),
    };
    let extent = match parameters.length_limit {
        Iperf3TestLength::Seconds(0) => "until it was stopped".to_owned(),
        Iperf3TestLength::Seconds(seconds) => format!("{seconds} s"),
        Iperf3TestLength::Bytes(bytes) => format!("{} bytes", format_bytes(bytes)),
        Iperf3TestLength::Blocks(blocks) => format!("{blocks} blocks"),
    };
    let unit = match parameters.protocol {
        Iperf3Transport::Tcp => "blocks",
        Iperf3Transport::Udp => "datagrams",
    };
    let (protocol, length) = (parameters.protocol.name(), format_bytes(parameters.length.into()));
    let asked = parameters.bitrate.map_or_else(String::new, |bitrate| {
        format!(" at {} a stream", rate(bitrate.bits_per_second() as f64))
    });
    format!("{protocol} with {with}: {streams}, {extent}, {unit} of {length}{asked}")
}

fn totals(
    name: &str,
    sent: &Iperf3Summary,
    received: &Iperf3Summary,
    datagrams: Option<&Iperf3Summary>,
) -> Vec<String> {
    let mut lines = vec![format!(
        "{name}: {} received, {} sent, in {}",
        rate(received.bits_per_second),
        rate(sent.bits_per_second),
        seconds(received.seconds.max(sent.seconds)),
    )];
    if let Some(resent) = sent.retransmits {
        lines.push(format!("{name}: {resent} retransmits"));
    }
    if let Some(datagrams) = datagrams {
        let (lost, packets) = (datagrams.lost_packets.unwrap_or(0), datagrams.packets.unwrap_or(0));
        lines.push(format!(
            "{name}: {lost} of {packets} datagrams lost ({} %), jitter {}",
            significant(datagrams.lost_percent.unwrap_or(0.0), 3),
            Span::from_secs_f64(datagrams.jitter_ms.unwrap_or(0.0) / 1e3),
        ));
    }
    lines
}

/// A line for each of several streams.
fn per_stream_lines(test: &Iperf3Test, report: &Iperf3Document) -> Vec<String> {
    test.streams()
        .iter()
        .zip(&report.end.streams)
        .filter_map(|(stream, figures)| {
            let of = figures.receiver.as_ref().or(figures.udp.as_ref())?;
            let client_sends = stream.sends != (test.role == Iperf3Role::Server);
            let way = if client_sends { "up" } else { "down" };
            // Of datagrams only what was sent is told for each.
            let sent = if figures.receiver.is_none() && of.sender { " sent" } else { "" };
            Some(format!("stream {} {way}: {}{sent}", stream.id, rate(of.bits_per_second)))
        })
        .collect()
}

/// What only an exact count knows: from here, or from a plumb at the other side.
fn datagram_orders(counts: &Iperf3Counts) -> Option<String> {
    let sides = [Some(counts), counts.remote.as_deref()].into_iter().flatten();
    let received: Vec<[u64; 2]> = sides
        .flat_map(|side| &side.streams)
        .filter_map(|stream| Some([stream.out_of_order?, stream.duplicates?]))
        .collect();
    let sum = |which: usize| received.iter().map(|counts| counts[which]).sum::<u64>();
    (!received.is_empty())
        .then(|| format!("datagrams: {} out of order, {} duplicates", sum(0), sum(1)))
}

fn round_trips(test: &Iperf3Test) -> Option<String> {
    let extents = test.streams().iter().map(|stream| stream.rtt_us).filter(|extent| extent.max > 0);
    let extents: Vec<_> = extents.collect();
    let min = extents.iter().map(|extent| extent.min).min()?;
    let max = extents.iter().map(|extent| extent.max).max()?;
    let mean = extents.iter().map(record::MinMaxMean::mean).sum::<u64>() / extents.len() as u64;
    let [min, mean, max] = [min, mean, max].map(Span::from_us);
    if min == max {
        return Some(format!("round trip by TCP here: {mean}"));
    }
    Some(format!("round trips by TCP here: min {min}, mean {mean}, max {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_names_the_directions_that_carried_something() {
        let interval = Span::from_secs(1);
        let of = Some(Span::from_secs(10));
        let up = Iperf3Progress {
            at: interval,
            of,
            sent: 125_000,
            received: 0,
            interval,
            omitted: false,
        };
        assert_eq!(progress(&up), "   1.0 s of 10 s   up  1.00 Mb/s");
        let down = Iperf3Progress { sent: 0, received: 1_250, omitted: true, ..up };
        assert_eq!(progress(&down), "   1.0 s of 10 s   down  10.0 kb/s   (not counted)");
    }
}
