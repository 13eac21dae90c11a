//! What is between two hosts, in a terminal.
//!
//! Left out: the readings of each connection, which are in the document.

use plumb_analysis::document::net::{
    NetBulkFlow, NetDatagrams, NetDistribution, NetDocument, NetLossLocations, NetOneWayDelay,
    NetPathMtu, NetPhase, NetProbes, NetSenderLimits,
};
use plumb_base::units::{Unit, significant};

use super::summary::push_wrapped;
use super::{TerminalStyle, TextRole};

mod exchange;

/// Where what is said of a phase begins.
const COLUMN: usize = 4;

/// The page.
pub fn render(document: &NetDocument, style: TerminalStyle) -> String {
    let mut out = String::new();
    let there = if document.there.name.is_empty() { "?" } else { &document.there.name };
    let kernel = match document.there.kernel.as_str() {
        "" => String::new(),
        kernel => format!(", Linux {kernel}"),
    };
    let title = format!("{} at {} ({there}{kernel})", document.asked, document.address);
    push_wrapped(&mut out, &title, TextRole::Bold, 0, style);
    for phase in &document.phases {
        put_phase(&mut out, phase, document.phases.len(), style);
    }
    if let Some(mtu) = &document.mtu {
        put_mtu(&mut out, mtu, style);
    }
    put_clocks(&mut out, document, style);
    for flag in &document.flags {
        push_wrapped(&mut out, &format!("note: {flag}"), TextRole::Dim, 2, style);
    }
    for problem in &document.problems {
        push_wrapped(&mut out, &format!("partial: {problem}"), TextRole::Warn, 2, style);
    }
    if document.ended == "stopped" {
        push_wrapped(
            &mut out,
            "stopped: what is above is what there was",
            TextRole::Warn,
            2,
            style,
        );
    }
    if let Some(run) = &document.run {
        push_wrapped(&mut out, &format!("run {run}: plumb show {run}"), TextRole::Dim, 2, style);
    }
    out
}

fn put_phase(out: &mut String, phase: &NetPhase, phases: usize, style: TerminalStyle) {
    let round = if phases > 4 { format!(" {}", phase.round + 1) } else { String::new() };
    let title = match (&phase.exchange, phase.name.as_str()) {
        (Some(exchange), _) => exchange::title(exchange),
        (None, "idle") => "Idle".to_owned(),
        (None, "down") => "Down, from there to here".to_owned(),
        (None, "up") => "Up, from here to there".to_owned(),
        (None, "udp-down") => "Datagrams down, from there to here".to_owned(),
        (None, "udp-up") => "Datagrams up, from here to there".to_owned(),
        (None, "udp-both") => "Datagrams in both directions at once".to_owned(),
        (None, _) => "Both directions at once".to_owned(),
    };
    let cut = if phase.ended == "complete" { "" } else { " (not to its end)" };
    push_wrapped(out, &format!("{title}{round}{cut}"), TextRole::Bold, 2, style);
    for flow in &phase.flows {
        put_flow(out, flow, phase.flows.len() > 1, style);
    }
    for stream in &phase.datagrams {
        put_datagrams(out, stream, phase.datagrams.len() > 1, style);
    }
    if let Some(probes) = &phase.probes {
        put_probes(out, probes, style);
    }
    if let Some(exchange) = &phase.exchange {
        exchange::put_exchange(out, exchange, style);
    }
    put_cost(out, phase, style);
}

/// Bits a second, as networks are sold by.
pub fn format_bit_rate(bytes_per_second: f64) -> String {
    let bits = bytes_per_second * 8.0;
    let steps = [(1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")];
    let (factor, unit) =
        steps.into_iter().find(|(factor, _)| bits * 1.000_5 >= *factor).unwrap_or((1.0, "b/s"));
    format!("{} {unit}", significant(bits / factor, 3))
}

fn format_span(ns: f64) -> String {
    Unit::Nanoseconds.format(ns, 3).to_string()
}

fn format_share(share: f64) -> String {
    Unit::Share.format(share, 2).to_string()
}

fn put_flow(out: &mut String, flow: &NetBulkFlow, named: bool, style: TerminalStyle) {
    let which = if named { format!(" {}", flow.direction) } else { String::new() };
    if flow.counted_by == "nobody" {
        let text = format!("rate{which}: none, it ended before the time that counts");
        return push_wrapped(out, &text, TextRole::Bad, COLUMN, style);
    }
    let over = match flow.streams {
        1 => String::new(),
        n => format!(" over {n} streams"),
    };
    let counted: Vec<f64> = flow
        .intervals
        .iter()
        .filter(|interval| interval.counts)
        .map(|interval| interval.bytes_per_second)
        .collect();
    let range = match (
        counted.iter().copied().reduce(f64::min),
        counted.iter().copied().reduce(f64::max),
    ) {
        (Some(least), Some(most)) => {
            format!(", by interval {} to {}", format_bit_rate(least), format_bit_rate(most))
        }
        _ => String::new(),
    };
    let rate = format_bit_rate(flow.bytes_per_second);
    let seconds = flow.seconds;
    let text = format!("rate{which}: {rate}{over} for {seconds:.1} s{range}");
    push_wrapped(out, &text, TextRole::Good, COLUMN, style);
    let congestion = if flow.congestion.is_empty() { "?" } else { &flow.congestion };
    let again = match flow.retransmitted_segments {
        0 => "nothing sent again".to_owned(),
        n => {
            let of = flow.bytes as f64 / f64::from(flow.mss_bytes.max(1));
            format!("{n} segments sent again ({})", format_share(n as f64 / of.max(1.0)))
        }
    };
    let rtt = if flow.rtt_mean_ns > 0.0 {
        let (least, mean) = (format_span(flow.rtt_min_ns), format_span(flow.rtt_mean_ns));
        format!(", round trip {least} at least, {mean} on average")
    } else {
        String::new()
    };
    push_wrapped(out, &format!("{congestion}, {again}{rtt}"), TextRole::Plain, COLUMN, style);
    if let Some(waits) = &flow.waits {
        push_wrapped(
            out,
            &format!("waited for: {}", sender_limits_text(waits)),
            TextRole::Plain,
            COLUMN,
            style,
        );
    }
}

fn put_datagrams(out: &mut String, stream: &NetDatagrams, named: bool, style: TerminalStyle) {
    let which = if named { format!(" {}", stream.direction) } else { String::new() };
    let asked = format_bit_rate(stream.asked_bytes_per_second);
    let size = stream.datagram_bytes;
    let Some(received) = stream.received else {
        let text =
            format!("rate{which}: {asked} asked for in {size} B each, what came is not known");
        return push_wrapped(out, &text, TextRole::Bad, COLUMN, style);
    };
    let rate = format_bit_rate(stream.bytes_per_second);
    let text = format!(
        "rate{which}: {rate} for {:.1} s, of {asked} asked for, in {received} datagrams of {size} B",
        stream.seconds
    );
    push_wrapped(out, &text, TextRole::Good, COLUMN, style);
    let lost = match (stream.lost, stream.sent) {
        (Some(0), Some(sent)) => format!("lost: none of {sent}"),
        (Some(lost), Some(sent)) => {
            let of = format_share(stream.loss.unwrap_or(0.0));
            let place = stream.lost_at.as_ref().map_or_else(String::new, loss_locations_text);
            let runs = match stream.loss_run_max {
                0 | 1 => String::new(),
                longest => format!("; at most {longest} in a row"),
            };
            format!("lost: {lost} of {sent} ({of}){place}{runs}")
        }
        _ => "lost: not known, the sender's count is".to_owned(),
    };
    let ink = if stream.lost == Some(0) { TextRole::Plain } else { TextRole::Warn };
    push_wrapped(out, &lost, ink, COLUMN, style);
    let extent = match stream.reordered {
        0 => String::new(),
        _ => format!(" (by {} at most)", stream.reordered_extent_max),
    };
    let (reordered, doubled) = (stream.reordered, stream.duplicated);
    let jitter = format_span(stream.jitter_ns);
    let text = format!("out of order: {reordered}{extent}, doubled: {doubled}, jitter {jitter}");
    push_wrapped(out, &text, TextRole::Plain, COLUMN, style);
    if let Some(delay) = &stream.one_way {
        push_wrapped(
            out,
            &format!("their way: {}", one_way(delay)),
            TextRole::Plain,
            COLUMN,
            style,
        );
    }
    if let Some(receiver) = &stream.receiver {
        // The kernel keeps twice what it takes of what is asked for.
        let (took, asked) = (receiver.buffer_bytes / 2, receiver.buffer_asked_bytes);
        if took < asked {
            let text = format!(
                "receive buffer{which}: {took} B of {asked} B asked for, as net.core.rmem_max allows"
            );
            let ink = if receiver.overflowed > 0 { TextRole::Warn } else { TextRole::Plain };
            push_wrapped(out, &text, ink, COLUMN, style);
        }
    }
}

fn loss_locations_text(places: &NetLossLocations) -> String {
    let at_least = if places.receiver_buffer_at_least { " at least" } else { "" };
    let parts = [
        (places.sender_queue, "in the sender's queue", ""),
        (places.path, "on the path", ""),
        (places.receiver_buffer, "in the receiver's buffer", at_least),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, place, more)| format!("{count}{more} {place}"))
        .collect();
    format!(": {}", parts.join(", "))
}

/// What took time, most first; what took less than one part in a hundred is left out.
fn sender_limits_text(waits: &NetSenderLimits) -> String {
    let mut parts = [
        (waits.network, "the network"),
        (waits.receive_window, "the receiver's window"),
        (waits.send_buffer, "the send buffer"),
        (waits.application, "the sender itself"),
    ];
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let parts: Vec<String> = parts
        .iter()
        .filter(|(share, _)| *share >= 0.01)
        .map(|(part, what)| format!("{what} {}", format_share(*part)))
        .collect();
    parts.join(", ")
}

/// The median, and of the percentiles those that so many can tell.
fn quantiles(times: &NetDistribution) -> String {
    let mut text = format!("p50 {}", format_span(times.p50_ns));
    for (name, value) in [("p99", times.p99_ns), ("p99.9", times.p999_ns)] {
        if let Some(value) = value {
            text += &format!(", {name} {}", format_span(value));
        }
    }
    text
}

fn put_probes(out: &mut String, probes: &NetProbes, style: TerminalStyle) {
    let said = |times: &NetDistribution| {
        format!("{}, most {}", quantiles(times), format_span(times.max_ns))
    };
    match &probes.path {
        Some(path) => {
            let text = format!("latency: {} (least {})", said(path), format_span(path.min_ns));
            push_wrapped(out, &text, TextRole::Good, COLUMN, style);
        }
        None => push_wrapped(out, "latency: no probe was answered", TextRole::Bad, COLUMN, style),
    }
    if let Some(application) = &probes.application {
        let rpm = probes
            .round_trips_per_minute
            .map_or_else(String::new, |rpm| format!("; {rpm:.0} round trips a minute"));
        let text = format!("as an application sees it: {}{rpm}", said(application));
        push_wrapped(out, &text, TextRole::Plain, COLUMN, style);
    }
    if let (Some(up), Some(down)) = (&probes.one_way_up, &probes.one_way_down) {
        let text = format!("one way: up {}, down {}", one_way(up), one_way(down));
        push_wrapped(out, &text, TextRole::Plain, COLUMN, style);
    }
    let place = match (probes.lost, probes.lost_up, probes.lost_down) {
        (0, ..) | (_, None, _) | (_, _, None) => String::new(),
        (_, Some(up), Some(down)) => format!(", {up} on the way up and {down} down"),
    };
    let lost = match probes.sent {
        0 => "no probe could be sent".to_owned(),
        sent => format!(
            "lost: {} of {sent} probes ({}){place}",
            probes.lost,
            format_share(probes.lost as f64 / sent as f64)
        ),
    };
    let ink = if probes.lost > 0 { TextRole::Warn } else { TextRole::Plain };
    push_wrapped(out, &lost, ink, COLUMN, style);
    let there = probes.there.clone().unwrap_or_default();
    let parts: Vec<String> = [
        ("doubled on the way up", there.duplicated),
        // An answer to each copy: what the way down doubled is beyond these.
        ("doubled on the way down", probes.duplicated.saturating_sub(there.duplicated)),
        ("out of order on the way up", there.reordered),
        ("out of order when back", probes.reordered),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(what, count)| format!("{count} {what}"))
    .collect();
    if !parts.is_empty() {
        push_wrapped(out, &format!("probes: {}", parts.join(", ")), TextRole::Warn, COLUMN, style);
    }
}

fn one_way(delay: &NetOneWayDelay) -> String {
    let bound = if delay.bound_ns > 0.0 {
        format!(" (±{})", format_span(delay.bound_ns))
    } else {
        String::new()
    };
    let p50 = format_span(delay.least_ns + delay.above_p50_ns);
    format!("p50 {p50}{bound}, p99 {} above the least", format_span(delay.above_p99_ns))
}

fn put_cost(out: &mut String, phase: &NetPhase, style: TerminalStyle) {
    let costs = DirectionCosts::all(phase);
    let mut parts = Vec::new();
    for each in &costs {
        let sides = if each.direction == "up" { ["here", "there"] } else { ["there", "here"] };
        let named = if costs.len() > 1 { format!("{} ", each.direction) } else { String::new() };
        for (what, side, cost, datagram) in [
            ("sending", sides[0], each.sender, each.sender_datagram),
            ("receiving", sides[1], each.receiver, each.receiver_datagram),
        ] {
            let Some(cost) = cost else { continue };
            let datagram =
                datagram.map_or_else(String::new, |ns| format!(" ({} each)", format_span(ns)));
            parts.push(format!("{named}{what} {side} {}{datagram}", per_gigabyte(cost)));
        }
    }
    if parts.is_empty() {
        return;
    }
    let text = format!("processor: {}{}", parts.join(", "), softirqs(phase, &costs));
    push_wrapped(out, &text, TextRole::Plain, COLUMN, style);
}

/// What a byte cost in one direction, in nanoseconds.
struct DirectionCosts<'a> {
    direction: &'a str,
    sender: Option<f64>,
    receiver: Option<f64>,
    /// For each datagram, where it is datagrams.
    sender_datagram: Option<f64>,
    receiver_datagram: Option<f64>,
    sender_softirq: Option<f64>,
    receiver_softirq: Option<f64>,
}

impl<'a> DirectionCosts<'a> {
    /// Of every direction of a phase.
    fn all(phase: &'a NetPhase) -> Vec<Self> {
        let flows = phase.flows.iter().map(|flow| Self {
            direction: &flow.direction,
            sender: flow.sender_cpu_ns_per_byte,
            receiver: flow.receiver_cpu_ns_per_byte,
            sender_datagram: None,
            receiver_datagram: None,
            sender_softirq: flow.sender_softirq_ns_per_byte,
            receiver_softirq: flow.receiver_softirq_ns_per_byte,
        });
        let datagrams = phase.datagrams.iter().map(|stream| Self {
            direction: &stream.direction,
            sender: stream.sender_cpu_ns_per_byte,
            receiver: stream.receiver_cpu_ns_per_byte,
            sender_datagram: stream.sender_cpu_ns_per_datagram,
            receiver_datagram: stream.receiver_cpu_ns_per_datagram,
            sender_softirq: stream.sender_softirq_ns_per_byte,
            receiver_softirq: stream.receiver_softirq_ns_per_byte,
        });
        flows.chain(datagrams).collect()
    }
}

/// Time in softirqs, which is of whole hosts: for each byte, where one direction had it for itself.
fn softirqs(phase: &NetPhase, costs: &[DirectionCosts<'_>]) -> String {
    let each = |side: &str| {
        let [alone] = costs else { return None };
        let sends = (alone.direction == "up") == (side == "here");
        if sends { alone.sender_softirq } else { alone.receiver_softirq }
    };
    let sides = [("here", &phase.cpu_here), ("there", &phase.cpu_there)];
    let parts: Vec<String> = sides
        .into_iter()
        .filter_map(|(side, cpu)| {
            let cpu = cpu.as_ref()?;
            let of = format_share(cpu.host_softirq_seconds / cpu.wall_seconds.max(1e-9));
            Some(match each(side) {
                Some(cost) => format!("{side} {} ({of} of a processor)", per_gigabyte(cost)),
                None => format!("{side} {of} of a processor"),
            })
        })
        .collect();
    match parts.as_slice() {
        [] => String::new(),
        parts => format!("; softirqs of the whole host: {}", parts.join(", ")),
    }
}

/// A nanosecond a byte is a second a gigabyte.
fn per_gigabyte(ns_per_byte: f64) -> String {
    format!("{} s/GB", significant(ns_per_byte, 3))
}

fn put_mtu(out: &mut String, mtu: &NetPathMtu, style: TerminalStyle) {
    let kernel = mtu
        .kernel_bytes
        .map_or_else(String::new, |bytes| format!("; this host's kernel believes {bytes} B"));
    let text = match (mtu.path_bytes, &mtu.problem) {
        (Some(path), _) => {
            let why = if mtu.limited_here {
                ", as long as this host's interface takes"
            } else if mtu.told_by_router {
                ", by the word of a router"
            } else if mtu.silent > 0 || mtu.kernel_bytes.is_some_and(|kernel| kernel > path) {
                ", longer ones vanish without a word"
            } else {
                ""
            };
            format!("longest packet up: {path} B{why}{kernel}")
        }
        (None, Some(problem)) => format!("longest packet up: {problem}"),
        (None, None) => return,
    };
    push_wrapped(out, &text, TextRole::Dim, 2, style);
}

fn put_clocks(out: &mut String, document: &NetDocument, style: TerminalStyle) {
    let Some(clocks) = &document.clocks else { return };
    if clocks.same {
        return push_wrapped(out, "clocks: one clock on both sides", TextRole::Dim, 2, style);
    }
    let steps = match clocks.steps {
        0 => String::new(),
        n => format!("; set {n} times meanwhile"),
    };
    let text = format!(
        "clocks: theirs {} ±{} from ours, gaining {:.2} ppm, by {} exchanges{steps}",
        format_span(clocks.offset_ns),
        format_span(clocks.bound_ns),
        clocks.drift_ppm,
        clocks.exchanges
    );
    push_wrapped(out, &text, TextRole::Dim, 2, style);
}

#[cfg(test)]
mod tests {
    use plumb_analysis::document::net::{NetCpu, NetDatagramReceiver, NetProbeReflector};

    use super::*;

    fn document() -> NetDocument {
        let path = NetDistribution { n: 10, p50_ns: 2e7, p99_ns: Some(3e7), ..Default::default() };
        let probes = NetProbes {
            sent: 200,
            answered: 198,
            lost: 2,
            lost_up: Some(2),
            lost_down: Some(0),
            path: Some(path.clone()),
            application: Some(path),
            round_trips_per_minute: Some(2_950.0),
            one_way_up: Some(NetOneWayDelay { least_ns: 1e7, bound_ns: 1e7, ..Default::default() }),
            one_way_down: Some(NetOneWayDelay::default()),
            ..Default::default()
        };
        let flow = NetBulkFlow {
            direction: "up".to_owned(),
            streams: 4,
            congestion: "cubic".to_owned(),
            bytes_per_second: 117.7e6,
            seconds: 4.0,
            retransmitted_segments: 12,
            bytes: 470_800_000,
            mss_bytes: 1448,
            waits: Some(NetSenderLimits { network: 0.9, application: 0.1, ..Default::default() }),
            sender_cpu_ns_per_byte: Some(0.31),
            sender_softirq_ns_per_byte: Some(0.0625),
            ..Default::default()
        };
        let phase = NetPhase {
            name: "up".to_owned(),
            ended: "complete".to_owned(),
            flows: vec![flow],
            probes: Some(probes),
            cpu_here: Some(NetCpu {
                wall_seconds: 4.0,
                host_softirq_seconds: 0.2,
                ..Default::default()
            }),
            ..Default::default()
        };
        NetDocument {
            asked: "user@host".to_owned(),
            address: "10.0.0.2".to_owned(),
            ended: "partial".to_owned(),
            problems: vec!["the agent was lost while running a test".to_owned()],
            phases: vec![phase],
            ..Default::default()
        }
    }

    #[test]
    fn the_page_says_rate_latency_loss_waits_and_cost() {
        let page = render(&document(), TerminalStyle::plain(120));
        for part in [
            "942 Mb/s over 4 streams",
            "latency: p50 20.0 ms, p99 30.0 ms",
            "2950 round trips a minute",
            "lost: 2 of 200 probes (1.0%), 2 on the way up and 0 down",
            "waited for: the network 90%, the sender itself 10%",
            "sending here 0.310 s/GB; softirqs of the whole host: here 0.0625 s/GB (5.0% of a processor)",
            "partial: the agent was lost",
        ] {
            assert!(page.contains(part), "no '{part}' in\n{page}");
        }
    }

    #[test]
    fn the_page_says_where_datagrams_were_lost_and_what_else_became_of_them() {
        let stream = NetDatagrams {
            direction: "down".to_owned(),
            datagram_bytes: 1_400,
            asked_bytes_per_second: 2.5e6,
            bytes_per_second: 2.4e6,
            seconds: 4.0,
            sent: Some(7_143),
            received: Some(7_100),
            lost: Some(43),
            loss: Some(43.0 / 7_143.0),
            lost_at: Some(NetLossLocations { path: 40, receiver_buffer: 3, ..Default::default() }),
            loss_run_max: 5,
            reordered: 2,
            reordered_extent_max: 3,
            duplicated: 1,
            jitter_ns: 12_300.0,
            one_way: Some(NetOneWayDelay { least_ns: 1e7, ..Default::default() }),
            sender_cpu_ns_per_byte: Some(1.5),
            sender_cpu_ns_per_datagram: Some(2_100.0),
            receiver: Some(NetDatagramReceiver {
                buffer_bytes: 425_984,
                buffer_asked_bytes: 4_000_000,
                ..Default::default()
            }),
            ..Default::default()
        };
        let lost = NetDatagrams { direction: "up".to_owned(), ..Default::default() };
        let phase = NetPhase {
            name: "udp-both".to_owned(),
            datagrams: vec![stream, lost],
            cpu_there: Some(NetCpu {
                wall_seconds: 4.0,
                host_softirq_seconds: 0.4,
                ..Default::default()
            }),
            ..Default::default()
        };
        let document = NetDocument { phases: vec![phase], ..document() };
        let page = render(&document, TerminalStyle::plain(120));
        for part in [
            "Datagrams in both directions",
            "rate down: 19.2 Mb/s for 4.0 s, of 20.0 Mb/s asked for, in 7100 datagrams of 1400 B",
            "lost: 43 of 7143 (0.60%): 40 on the path, 3 in the receiver's buffer; at most 5 in a row",
            "out of order: 2 (by 3 at most), doubled: 1, jitter 12.3 µs",
            "their way: p50 10.0 ms",
            "asked for in 0 B each, what came is not known",
            "receive buffer down: 212992 B of 4000000 B asked for, as net.core.rmem_max allows",
            "down sending there 1.50 s/GB (2.10 µs each); softirqs of the whole host: there 10% of a processor",
        ] {
            assert!(page.contains(part), "no '{part}' in\n{page}");
        }
        let narrow = render(&document, TerminalStyle::plain(40));
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
    }

    #[test]
    fn probes_that_came_twice_or_late_are_told_by_direction_and_others_are_not() {
        let with = |duplicated, there| {
            let mut document = document();
            let probes = document.phases[0].probes.as_mut().unwrap();
            (probes.duplicated, probes.there) = (duplicated, Some(there));
            render(&document, TerminalStyle::plain(120))
        };
        let quiet =
            with(0, NetProbeReflector { received: 198, answered: 198, ..Default::default() });
        assert!(!quiet.contains("doubled") && !quiet.contains("out of order"), "{quiet}");
        let loud = with(5, NetProbeReflector { duplicated: 2, reordered: 7, ..Default::default() });
        let wanted = "probes: 2 doubled on the way up, 3 doubled on the way down, 7 out of order on the way up";
        assert!(loud.contains(wanted), "{loud}");
    }

    #[test]
    fn the_page_says_how_long_a_packet_arrives_and_who_said_so() {
        let found = NetPathMtu {
            path_bytes: Some(1_400),
            kernel_bytes: Some(1_500),
            ..NetPathMtu::default()
        };
        let told = NetPathMtu { told_by_router: true, ..found.clone() };
        let problem = Some("nobody answered".to_owned());
        let cases = [
            (
                told,
                "longest packet up: 1400 B, by the word of a router; this host's kernel believes 1500 B",
            ),
            (found, "1400 B, longer ones vanish without a word"),
            (NetPathMtu { problem, ..NetPathMtu::default() }, "longest packet up: nobody answered"),
        ];
        for (mtu, part) in cases {
            let page =
                render(&NetDocument { mtu: Some(mtu), ..document() }, TerminalStyle::plain(120));
            assert!(page.contains(part), "no '{part}' in\n{page}");
        }
    }

    #[test]
    fn a_direction_without_time_that_counts_has_no_rate_on_the_page() {
        let counted_by = "nobody".to_owned();
        let flow = NetBulkFlow { direction: "up".to_owned(), counted_by, ..Default::default() };
        let phase = NetPhase { name: "up".to_owned(), flows: vec![flow], ..Default::default() };
        let page =
            render(&NetDocument { phases: vec![phase], ..document() }, TerminalStyle::plain(120));
        assert!(page.contains("rate: none, it ended before the time that counts"), "{page}");
        assert!(!page.contains("b/s"), "{page}");
    }

    #[test]
    fn the_page_fits_forty_columns() {
        let page = render(&document(), TerminalStyle::plain(40));
        assert!(page.lines().all(|line| line.chars().count() <= 40), "{page}");
    }

    #[test]
    fn rates_have_three_digits_and_the_unit_that_suits() {
        assert_eq!(format_bit_rate(125.0), "1.00 kb/s");
        assert_eq!(format_bit_rate(124_950_000.0), "1.00 Gb/s");
        assert_eq!(format_bit_rate(117_700_000.0), "942 Mb/s");
    }
}
