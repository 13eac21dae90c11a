//! What is between two hosts, in a terminal; the readings of each connection are in the document only.

use plumb_base::units::{Unit, significant};
use plumb_result::net::{
    ByteCosts, ClockSummary, CountedBy, Direction, MtuResult, NetBulkFlow, NetDatagrams,
    NetDistribution, NetDocument, NetEnding, NetLossLocations, NetPhase, NetProbes,
    NetRequestResponse, OneWayDelay, PhaseName, RequestOrder, RequestTransport, SenderLimits, Side,
};

use super::{TerminalPage, TerminalStyle, TextRole, format_bit_rate, net_summary, occurred};

/// Where what is said about a phase begins.
const COLUMN: usize = 4;

/// The page: the summary, and every phase in full with `details`, or where there is no summary.
pub fn render(document: &NetDocument, details: bool, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    match &document.summary {
        Some(summary) => {
            net_summary::put(&mut page, document, summary);
            if !details {
                return page.out;
            }
            page.out.push('\n');
        }
        None => page.put(0, TextRole::Bold, &net_summary::title(document)),
    }
    page.out += &phases(document, style);
    page.out
}

/// Every phase in full, path MTU, clocks, and what a reader must know.
pub(crate) fn phases(document: &NetDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for phase in &document.phases {
        page.phase(phase, document.phases.iter().any(|phase| phase.round > 0));
    }
    if let Some(mtu) = &document.mtu {
        page.mtu(mtu);
    }
    if let Some(clocks) = &document.clocks {
        page.clocks(clocks);
    }
    for flag in &document.flags {
        page.put(2, TextRole::Dim, &format!("note: {flag}"));
    }
    for problem in &document.problems {
        page.put(2, TextRole::Warn, &format!("partial: {problem}"));
    }
    if document.ended == NetEnding::Stopped {
        page.put(2, TextRole::Warn, "stopped: these are the results so far");
    }
    page.out
}

fn format_span(ns: f64) -> String {
    Unit::Nanoseconds.format(ns, 3).to_string()
}

fn format_share(share: f64) -> String {
    Unit::Share.format(share, 2).to_string()
}

impl TerminalPage {
    /// A line of a phase.
    fn line(&mut self, role: TextRole, text: &str) {
        self.put(COLUMN, role, text);
    }

    fn phase(&mut self, phase: &NetPhase, is_numbered: bool) {
        let round = if is_numbered { format!(" {}", phase.round + 1) } else { String::new() };
        let title = match (&phase.exchange, phase.name) {
            (Some(exchange), _) => exchange_title(exchange),
            (None, name) => match name {
                PhaseName::Idle => "Idle",
                PhaseName::Down => "Down, from there to here",
                PhaseName::Up => "Up, from here to there",
                PhaseName::UdpDown => "Datagrams down, from there to here",
                PhaseName::UdpUp => "Datagrams up, from here to there",
                PhaseName::UdpBoth => "Datagrams in both directions at once",
                _ => "Both directions at once",
            }
            .to_owned(),
        };
        let cut = if phase.ended == NetEnding::Complete { "" } else { " (cut short)" };
        self.put(2, TextRole::Bold, &format!("{title}{round}{cut}"));
        let named = |direction: Direction, count: usize| {
            if count > 1 { format!(" {direction}") } else { String::new() }
        };
        for flow in &phase.flows {
            self.flow(flow, &named(flow.direction, phase.flows.len()));
        }
        for stream in &phase.datagrams {
            self.datagrams(stream, &named(stream.direction, phase.datagrams.len()));
        }
        if let Some(probes) = &phase.probes {
            self.probes(probes);
        }
        if let Some(exchange) = &phase.exchange {
            self.exchange(exchange);
        }
        self.costs(phase);
    }

    fn flow(&mut self, flow: &NetBulkFlow, which: &str) {
        if flow.counted_by == CountedBy::Nobody {
            let text = format!("rate{which}: none, it ended during the warm-up");
            return self.line(TextRole::Bad, &text);
        }
        let over = match flow.streams {
            1 => String::new(),
            n => format!(" over {n} streams"),
        };
        let counted = flow.intervals.iter().filter(|interval| interval.counts);
        let counted = counted.map(|interval| interval.bytes_per_second);
        let range = match (counted.clone().reduce(f64::min), counted.reduce(f64::max)) {
            (Some(least), Some(most)) => {
                format!(", by interval {} to {}", format_bit_rate(least), format_bit_rate(most))
            }
            _ => String::new(),
        };
        let (rate, seconds) = (format_bit_rate(flow.bytes_per_second), flow.seconds);
        self.line(TextRole::Good, &format!("rate{which}: {rate}{over} for {seconds:.1} s{range}"));
        let congestion = if flow.congestion.is_empty() { "?" } else { &flow.congestion };
        let again = match flow.retransmitted_segments {
            0 => "no retransmits".to_owned(),
            n => {
                let of = flow.bytes as f64 / f64::from(flow.mss_bytes.max(1));
                format!("{n} retransmits ({})", format_share(n as f64 / of.max(1.0)))
            }
        };
        let rtt = if flow.rtt_mean_ns > 0.0 {
            let (least, mean) = (format_span(flow.rtt_min_ns), format_span(flow.rtt_mean_ns));
            format!(", RTT min {least}, mean {mean}")
        } else {
            String::new()
        };
        self.line(TextRole::Plain, &format!("{congestion}, {again}{rtt}"));
        if let Some(waits) = &flow.waits {
            self.line(TextRole::Plain, &format!("limited by: {}", sender_limits_text(waits)));
        }
    }

    fn datagrams(&mut self, stream: &NetDatagrams, which: &str) {
        let asked = format_bit_rate(stream.asked_bytes_per_second);
        let size = stream.datagram_bytes;
        let Some(received) = stream.received else {
            let text = format!(
                "rate{which}: {asked} requested in datagrams of {size} B; received: unknown"
            );
            return self.line(TextRole::Bad, &text);
        };
        let (rate, seconds) = (format_bit_rate(stream.bytes_per_second), stream.seconds);
        let text = format!(
            "rate{which}: {rate} for {seconds:.1} s, of {asked} requested, in {received} datagrams of {size} B"
        );
        self.line(TextRole::Good, &text);
        let lost = match (stream.lost, stream.sent) {
            (Some(0), Some(sent)) => format!("lost: none of {sent}"),
            (Some(lost), Some(sent)) => {
                let of = format_share(stream.loss.unwrap_or(0.0));
                let place = stream.lost_at.as_ref().map_or_else(String::new, loss_locations_text);
                let runs = match stream.loss_run_max {
                    0 | 1 => String::new(),
                    longest => format!("; longest run {longest}"),
                };
                format!("lost: {lost} of {sent} ({of}){place}{runs}")
            }
            _ => "lost: unknown, as the sender's count is missing".to_owned(),
        };
        let ink = if stream.lost == Some(0) { TextRole::Plain } else { TextRole::Warn };
        self.line(ink, &lost);
        let extent = match stream.reordered {
            0 => String::new(),
            _ => format!(" (by up to {})", stream.reordered_extent_max),
        };
        let (reordered, doubled) = (stream.reordered, stream.duplicated);
        let jitter = format_span(stream.jitter_ns);
        let text =
            format!("reordered: {reordered}{extent}, duplicates: {doubled}, jitter {jitter}");
        self.line(TextRole::Plain, &text);
        if let Some(delay) = &stream.one_way {
            self.line(TextRole::Plain, &format!("one-way delay: {}", one_way(delay)));
        }
        if let Some(receiver) = &stream.receiver {
            // The kernel keeps twice what it takes of what is asked for.
            let (took, asked) = (receiver.buffer_bytes / 2, receiver.buffer_asked_bytes);
            if took < asked {
                let text = format!(
                    "receive buffer{which}: {took} B of {asked} B requested, limited by net.core.rmem_max"
                );
                let ink = if receiver.overflowed > 0 { TextRole::Warn } else { TextRole::Plain };
                self.line(ink, &text);
            }
        }
    }

    fn probes(&mut self, probes: &NetProbes) {
        let said = |times: &NetDistribution| {
            format!("{}, max {}", quantiles(times), format_span(times.max_ns))
        };
        match &probes.path {
            Some(path) => {
                let least = format_span(path.min_ns);
                self.line(TextRole::Good, &format!("latency: {} (min {least})", said(path)));
            }
            None => self.line(TextRole::Bad, "latency: no probe was answered"),
        }
        if let Some(application) = &probes.application {
            let rpm = probes
                .round_trips_per_minute
                .map_or_else(String::new, |rpm| format!("; {rpm:.0} round trips a minute"));
            let text = format!("as an application sees it: {}{rpm}", said(application));
            self.line(TextRole::Plain, &text);
        }
        if let (Some(up), Some(down)) = (&probes.one_way_up, &probes.one_way_down) {
            let text = format!("one-way delay: up {}, down {}", one_way(up), one_way(down));
            self.line(TextRole::Plain, &text);
        }
        let place = match (probes.lost_up, probes.lost_down) {
            (Some(up), Some(down)) if probes.lost > 0 => {
                format!(", {up} on the way up and {down} down")
            }
            _ => String::new(),
        };
        let lost = match probes.sent {
            0 => "no probe could be sent".to_owned(),
            sent => {
                let share = format_share(probes.lost as f64 / sent as f64);
                format!("lost: {} of {sent} probes ({share}){place}", probes.lost)
            }
        };
        self.line(if probes.lost > 0 { TextRole::Warn } else { TextRole::Plain }, &lost);
        let there = probes.there.unwrap_or_default();
        let odd = occurred(&[
            (there.duplicated, "duplicated on the way up"),
            // An answer to each copy: those duplicated on the way down are beyond these.
            (probes.duplicated.saturating_sub(there.duplicated), "duplicated on the way down"),
            (there.reordered, "reordered on the way up"),
            (probes.reordered, "reordered on return"),
        ]);
        if !odd.is_empty() {
            self.line(TextRole::Warn, &format!("probes: {}", odd.join(", ")));
        }
    }

    fn exchange(&mut self, exchange: &NetRequestResponse) {
        let said = |times: &NetDistribution| {
            let (most, least) = (format_span(times.max_ns), format_span(times.min_ns));
            format!("{}, max {most}, min {least}", quantiles(times))
        };
        let bytes = |bytes: u32| match bytes {
            0..1_024 => format!("{bytes} B"),
            _ => Unit::Bytes.format(f64::from(bytes), 3).to_string(),
        };
        let size = match (exchange.request_bytes, exchange.response_bytes) {
            (request, response) if request == response => format!("{} each way", bytes(request)),
            (request, response) => format!("{} there, {} back", bytes(request), bytes(response)),
        };
        match &exchange.latency {
            Some(latency) => {
                self.line(TextRole::Good, &format!("latency: {} ({size})", said(latency)));
            }
            None => self.line(TextRole::Bad, "latency: no request was answered"),
        }
        let rate = significant(exchange.requests_per_second, 4);
        let text = format!("rate: {rate} requests a second for {:.1} s", exchange.seconds);
        self.line(TextRole::Plain, &text);
        if let Some(lateness) = exchange.lateness.as_ref().filter(|lateness| lateness.n > 0) {
            let most = format_span(lateness.max_ns);
            let text = format!("send lateness: {}, max {most}", quantiles(lateness));
            self.line(TextRole::Plain, &text);
        }
        if let Some(connect) = &exchange.connect {
            let text = match connect.n {
                1 => format!("connected in {}", format_span(connect.p50_ns)),
                _ => format!("connect time: {}", said(connect)),
            };
            self.line(TextRole::Plain, &text);
        }
        let (lost, due) = (exchange.lost, exchange.due);
        if exchange.transport == RequestTransport::Udp {
            let part = format_share(lost as f64 / due.max(1) as f64);
            let ink = if lost > 0 { TextRole::Warn } else { TextRole::Plain };
            self.line(ink, &format!("lost: {lost} of {due} ({part})"));
        }
        let costs = [
            (Side::Here, exchange.asking_cpu_ns_per_request),
            (Side::There, exchange.answering_cpu_ns_per_request),
        ];
        let costs = costs.into_iter();
        let costs: Vec<String> = costs
            .filter_map(|(side, cost)| Some(format!("{} {side}", format_span(cost?))))
            .collect();
        if !costs.is_empty() {
            self.line(TextRole::Plain, &format!("CPU per request: {}", costs.join(", ")));
        }
    }

    fn costs(&mut self, phase: &NetPhase) {
        let flows = phase.flows.iter().map(|flow| (flow.direction, &flow.costs, [None; 2]));
        let datagrams = phase.datagrams.iter().map(|stream| {
            let each = [stream.sender_cpu_ns_per_datagram, stream.receiver_cpu_ns_per_datagram];
            (stream.direction, &stream.costs, each)
        });
        let costs: Vec<_> = flows.chain(datagrams).collect();
        let mut parts = Vec::new();
        for (direction, cost, [sender_each, receiver_each]) in &costs {
            let [sender, receiver] = direction.sides();
            let named = if costs.len() > 1 { format!("{direction} ") } else { String::new() };
            for (what, side, cost, datagram) in [
                ("sending", sender, cost.sender_cpu_ns_per_byte, *sender_each),
                ("receiving", receiver, cost.receiver_cpu_ns_per_byte, *receiver_each),
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
        let alone = match costs.as_slice() {
            [(direction, costs, _)] => Some((*direction, *costs)),
            _ => None,
        };
        let text = format!("CPU: {}{}", parts.join(", "), softirqs(phase, alone));
        self.line(TextRole::Plain, &text);
    }

    fn mtu(&mut self, mtu: &MtuResult) {
        let kernel = mtu
            .kernel_bytes
            .map_or_else(String::new, |bytes| format!("; this host's kernel assumes {bytes} B"));
        let text = match (mtu.path_bytes, &mtu.problem) {
            (Some(path), _) => {
                let why = if mtu.limited_here {
                    ", limited by this host's interface"
                } else if mtu.told_by_router {
                    ", reported by a router"
                } else if mtu.silent > 0 || mtu.kernel_bytes.is_some_and(|kernel| kernel > path) {
                    ", longer packets are dropped silently"
                } else {
                    ""
                };
                format!("path MTU up: {path} B{why}{kernel}")
            }
            (None, Some(problem)) => format!("path MTU up: {problem}"),
            (None, None) => return,
        };
        self.put(2, TextRole::Dim, &text);
    }

    fn clocks(&mut self, clocks: &ClockSummary) {
        if clocks.same {
            return self.put(2, TextRole::Dim, "clocks: both sides share one clock");
        }
        let steps = match clocks.steps {
            0 => String::new(),
            n => format!("; stepped {n} times"),
        };
        let text = format!(
            "clocks: remote offset {} ±{}, drift {:.2} ppm, from {} exchanges{steps}",
            format_span(clocks.offset_ns),
            format_span(clocks.bound_ns),
            clocks.drift_ppm,
            clocks.exchanges
        );
        self.put(2, TextRole::Dim, &text);
    }
}

fn exchange_title(exchange: &NetRequestResponse) -> String {
    let pacing = match (exchange.pacing, exchange.per_second) {
        (RequestOrder::Open, Some(per_second)) => format!("{per_second} a second"),
        (RequestOrder::Connect, _) => "a connection each".to_owned(),
        _ => "one after another".to_owned(),
    };
    format!("Requests and responses over {}, {pacing}", exchange.transport.title())
}

fn loss_locations_text(places: &NetLossLocations) -> String {
    let in_buffer = if places.receiver_buffer_at_least {
        "at least in the receiver's buffer"
    } else {
        "in the receiver's buffer"
    };
    let parts = occurred(&[
        (places.sender_queue, "in the sender's queue"),
        (places.path, "on the path"),
        (places.receiver_buffer, in_buffer),
    ]);
    format!(": {}", parts.join(", "))
}

/// What took time, most first; what took less than one part in a hundred is left out.
fn sender_limits_text(waits: &SenderLimits) -> String {
    let mut parts = [
        (waits.network, "the network"),
        (waits.receive_window, "the receiver's window"),
        (waits.send_buffer, "the send buffer"),
        (waits.application, "the sending application"),
    ];
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let told = parts.iter().filter(|(share, _)| *share >= 0.01);
    let told: Vec<String> =
        told.map(|(part, what)| format!("{what} {}", format_share(*part))).collect();
    told.join(", ")
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

fn one_way(delay: &OneWayDelay) -> String {
    let bound = if delay.bound_ns > 0.0 {
        format!(" (±{})", format_span(delay.bound_ns))
    } else {
        String::new()
    };
    let p50 = format_span(delay.least_ns + delay.above_p50_ns);
    format!("p50 {p50}{bound}, p99 {} above min", format_span(delay.above_p99_ns))
}

/// Time in softirqs, which is of whole hosts: for each byte, where one direction had it for itself.
fn softirqs(phase: &NetPhase, alone: Option<(Direction, &ByteCosts)>) -> String {
    let each = |side: Side| {
        let (direction, costs) = alone?;
        let sends = direction.sides()[0] == side;
        if sends { costs.sender_softirq_ns_per_byte } else { costs.receiver_softirq_ns_per_byte }
    };
    let sides = [(Side::Here, &phase.cpu_here), (Side::There, &phase.cpu_there)];
    let parts: Vec<String> = sides
        .into_iter()
        .filter_map(|(side, cpu)| {
            let cpu = cpu.as_ref()?;
            let of = format_share(cpu.host_softirq_seconds / cpu.wall_seconds.max(1e-9));
            Some(match each(side) {
                Some(cost) => format!("{side} {} ({of} of a CPU)", per_gigabyte(cost)),
                None => format!("{side} {of} of a CPU"),
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

#[cfg(test)]
mod tests {
    use plumb_result::net::{
        LatencySummary, LoadSummary, NetCpu, NetDatagramReceiver, NetHost, NetInterval, NetOutage,
        NetSummary, ProbeReflectorReport,
    };

    use super::*;

    fn times() -> NetDistribution {
        NetDistribution {
            n: 9,
            min_ns: 1.8e4,
            p50_ns: 2.13e4,
            p99_ns: Some(4e4),
            p999_ns: Some(8e4),
            max_ns: 1.2e6,
            ..NetDistribution::default()
        }
    }

    fn bulk_phase() -> NetPhase {
        let interval =
            |bytes_per_second| NetInterval { bytes_per_second, counts: true, ..Default::default() };
        let flow = NetBulkFlow {
            streams: 4,
            congestion: "cubic".to_owned(),
            bytes_per_second: 117.7e6,
            seconds: 4.0,
            intervals: vec![interval(100e6), interval(125e6)],
            retransmitted_segments: 12,
            bytes: 470_800_000,
            mss_bytes: 1448,
            rtt_min_ns: 1e7,
            rtt_mean_ns: 2e7,
            waits: Some(SenderLimits { network: 0.9, application: 0.1, ..Default::default() }),
            costs: ByteCosts {
                sender_cpu_ns_per_byte: Some(0.31),
                sender_softirq_ns_per_byte: Some(0.0625),
                ..Default::default()
            },
            ..Default::default()
        };
        let probes = NetProbes {
            sent: 200,
            answered: 198,
            lost: 2,
            lost_up: Some(2),
            lost_down: Some(0),
            duplicated: 5,
            path: Some(times()),
            application: Some(times()),
            round_trips_per_minute: Some(2_950.0),
            one_way_up: Some(OneWayDelay { least_ns: 1e7, bound_ns: 1e7, ..Default::default() }),
            one_way_down: Some(OneWayDelay::default()),
            there: Some(ProbeReflectorReport { duplicated: 2, reordered: 7, ..Default::default() }),
            ..Default::default()
        };
        NetPhase {
            name: PhaseName::Up,
            flows: vec![flow],
            probes: Some(probes),
            cpu_here: Some(NetCpu {
                wall_seconds: 4.0,
                host_softirq_seconds: 0.2,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn datagram_phase() -> NetPhase {
        let stream = NetDatagrams {
            direction: Direction::Down,
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
            one_way: Some(OneWayDelay { least_ns: 1e7, ..Default::default() }),
            costs: ByteCosts { sender_cpu_ns_per_byte: Some(1.5), ..Default::default() },
            sender_cpu_ns_per_datagram: Some(2_100.0),
            receiver: Some(NetDatagramReceiver {
                buffer_bytes: 425_984,
                buffer_asked_bytes: 4_000_000,
                ..Default::default()
            }),
            ..Default::default()
        };
        NetPhase {
            name: PhaseName::UdpBoth,
            datagrams: vec![stream, NetDatagrams::default()],
            cpu_there: Some(NetCpu {
                wall_seconds: 4.0,
                host_softirq_seconds: 0.4,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn exchange_phase() -> NetPhase {
        let exchange = NetRequestResponse {
            transport: RequestTransport::Udp,
            request_bytes: 64,
            response_bytes: 64,
            due: 100,
            answered: 98,
            lost: 2,
            seconds: 4.0,
            requests_per_second: 46_812.0,
            latency: Some(times()),
            connect: Some(times()),
            asking_cpu_ns_per_request: Some(6_100.0),
            answering_cpu_ns_per_request: Some(5_000.0),
            ..Default::default()
        };
        NetPhase {
            name: PhaseName::ExchangeUdp,
            exchange: Some(exchange),
            ended: NetEnding::Partial,
            ..Default::default()
        }
    }

    fn document() -> NetDocument {
        let cut = NetBulkFlow { counted_by: CountedBy::Nobody, ..Default::default() };
        let down = NetPhase { name: PhaseName::Down, flows: vec![cut], ..Default::default() };
        NetDocument {
            asked: "user@host".to_owned(),
            address: "10.0.0.2".to_owned(),
            there: NetHost {
                name: "host".to_owned(),
                kernel: "6.1".to_owned(),
                ..Default::default()
            },
            ended: NetEnding::Partial,
            problems: vec!["the agent was lost while running a test".to_owned()],
            flags: vec!["both sides are one machine".to_owned()],
            clocks: Some(ClockSummary { offset_ns: 3e6, exchanges: 200, ..Default::default() }),
            phases: vec![bulk_phase(), datagram_phase(), exchange_phase(), down],
            ..Default::default()
        }
    }

    #[test]
    fn the_page_tells_every_phase() {
        insta::assert_snapshot!(render(&document(), true, TerminalStyle::plain(120)));
    }

    fn summarised() -> NetDocument {
        let latency = |p50_ns: f64, p99_ns: Option<f64>| {
            Some(LatencySummary {
                p50_ns,
                p50_ci95_ns: Some([0.9 * p50_ns, 1.1 * p50_ns]),
                p90_ns: p99_ns.map(|ns| ns / 1.2),
                p99_ns,
            })
        };
        let load = |phase, direction, rate: f64, ci95| LoadSummary {
            phase,
            direction: Some(direction),
            bytes_per_second: Some(rate),
            bytes_per_second_ci95: ci95,
            idle: latency(28_100.0, Some(51_200.0)),
            loaded: latency(19_300.0, Some(1_440_000.0)),
            loss: Some(0.0),
            limited_by: Some("receive window".to_owned()),
            sender_cpu_ns_per_byte: Some(0.34),
            receiver_cpu_ns_per_byte: Some(0.29),
            ..LoadSummary::default()
        };
        let warnings = [
            "OUTAGE: nothing came through for 2.2 s during 'down', round 3: its figures are of a path that was cut",
            "up: the rate is not steady: 12.0 Mb/s in one of ten intervals or less, 8.10 Gb/s in one of ten or more",
            "both sides are one machine: they share its processors, and times of the whole host are of both",
        ];
        let outage =
            NetOutage { phase: PhaseName::Down, round: 2, from_seconds: 0.5, to_seconds: 2.7 };
        NetDocument {
            outages: vec![outage],
            summary: Some(NetSummary {
                rounds: 6,
                loads: vec![
                    load(PhaseName::Down, Direction::Down, 1.16e9, Some([1.15e9, 1.18e9])),
                    load(PhaseName::Up, Direction::Up, 7.54e8, Some([-1e8, 1.6e9])),
                ],
                p99_refused: None,
                warnings: warnings.map(str::to_owned).to_vec(),
            }),
            run: Some("net-20260102-7f3a".to_owned()),
            seconds: 13.9,
            mtu: Some(MtuResult { path_bytes: Some(1_500), ..MtuResult::default() }),
            problems: Vec::new(),
            ended: NetEnding::Complete,
            phases: vec![bulk_phase()],
            ..document()
        }
    }

    #[test]
    fn the_first_screen_begins_with_the_outage_and_has_the_answer() {
        let page = render(&summarised(), false, TerminalStyle::plain(80));
        assert!(page.starts_with("! OUTAGE") && page.lines().count() < 24, "{page}");
        insta::assert_snapshot!(page);
        let ascii = TerminalStyle { color: false, unicode: false, width: 140 };
        insta::assert_snapshot!("ascii_140", render(&summarised(), false, ascii));
        insta::assert_snapshot!(
            "columns_40",
            render(&summarised(), false, TerminalStyle::plain(40))
        );
    }

    #[test]
    fn the_page_fits_forty_columns() {
        let page = render(&summarised(), true, TerminalStyle::plain(40));
        assert!(page.lines().all(|line| line.chars().count() <= 40), "{page}");
        let page = render(&document(), true, TerminalStyle::plain(40));
        assert!(page.lines().all(|line| line.chars().count() <= 40), "{page}");
    }

    #[test]
    fn the_page_says_how_long_a_packet_arrives_and_who_said_so() {
        let line = |mtu: MtuResult| {
            let document = NetDocument { mtu: Some(mtu), ..NetDocument::default() };
            render(&document, true, TerminalStyle::plain(120))
                .lines()
                .nth(1)
                .unwrap()
                .trim()
                .to_owned()
        };
        let found =
            MtuResult { path_bytes: Some(1_400), kernel_bytes: Some(1_500), ..Default::default() };
        let kernel = "this host's kernel assumes 1500 B";
        assert_eq!(
            line(MtuResult { told_by_router: true, ..found.clone() }),
            format!("path MTU up: 1400 B, reported by a router; {kernel}")
        );
        assert_eq!(
            line(found),
            format!("path MTU up: 1400 B, longer packets are dropped silently; {kernel}")
        );
        let problem = Some("nobody answered".to_owned());
        let silent = MtuResult { problem, ..MtuResult::default() };
        assert_eq!(line(silent), "path MTU up: nobody answered");
    }

    #[test]
    fn rates_have_three_digits_and_the_unit_that_suits() {
        assert_eq!(format_bit_rate(125.0), "1.00 kb/s");
        assert_eq!(format_bit_rate(124_950_000.0), "1.00 Gb/s");
        assert_eq!(format_bit_rate(117_700_000.0), "942 Mb/s");
    }
}
