//! `display.transport`: the same pictures over streams and by message transactions, on this host.
//!
//! After Lantz, Nowicki & Theimer (1985, §6): an inter-kernel protocol in V's manner beside byte streams, and a reply before or after a message
//! is carried out.

use plumb_analysis::claim::FigureToday;
use plumb_harness::spec::DisplayPath;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, gains_in_order, order_cases, pairs_within};
use crate::display::process_tcp::PROCESS_TCP;
use crate::factor::channel::{PLACEMENT, placement_of};
use crate::factor::display::{
    BYTES, CODE, CPU, DATA, RATE, RESPONSES, ROUND_TRIPS, SWITCHES, cell, cell_at, rate_at,
    table_entry,
};
use crate::pages::against;
use crate::prelude::*;

/// A transport and a mode a cell.
pub static EXPERIMENT: Experiment = Experiment {
    id: "display.transport",
    study: "distributed",
    question: "How much does the transport matter to a display, and how much its implementation?",
    hypothesis: "Where each message is waited for, its round trip decides. In batches of a kilobyte that wait for their replies, a reply before the \
                 message is carried out wins what both ends can do at the same time.",
    factors: &[
        Factor::of_words(
            "transport",
            "a call, a unix socket, TCP over loopback, a WebSocket over it, or over UDP message transactions of up to 1 KiB, replied to after or before they are \
             carried out, or a byte stream in packets of 532 bytes; plumb's TCP in the client's process, over a TAP; or TCP behind a relay at a pseudoterminal, or one that polls its end \
             each 100 µs",
            &TRANSPORTS,
        )
        .labelled(&[
            ("messages", "messages, late reply"),
            (EARLY, "messages, early reply"),
            ("websocket", "WebSocket"),
            (BYTES_OVER_UDP, "byte stream over UDP"),
            (PROCESS_TCP, "TCP in the client's process"),
            (RELAY, "TCP behind a relay at a terminal"),
            (POLLING, "TCP behind a polling relay"),
        ]),
        Factor::of_words(
            "mode",
            "780 rectangles added in batches; the same, then drawn; or each drawn as it is added, waiting for every reply or not",
            &["construction", "batch", "incremental", "pipelined-incremental"],
        ),
        Factor { meaning: "whether both ends share a CPU", ..PLACEMENT }
            .at(Words(&["same-cpu", "other-cpu"])),
    ],
    responses: &[RATE, BYTES, ROUND_TRIPS, CPU, SWITCHES, CODE, DATA],
    plan_cell: |point| {
        let transport = point.text("transport").unwrap_or("direct").to_owned();
        let mode = point.text("mode").unwrap_or("batch");
        let (_, task) = cell("array", mode, Some(DisplayPath::Local(transport)))?;
        let placement = placement_of(point, WakeMode::Block)?;
        if point.text("transport") == Some("direct") && placement != CpuPlacement::SameCpu {
            return Err(Exclusion::impossible("a call has one thread: choose placement same-cpu"));
        }
        if point.text("transport") == Some("direct") && point.response == SWITCHES.name {
            return Err(Exclusion::NotApplicable);
        }
        let is_memory = [CODE.name, DATA.name].contains(&point.response);
        if is_memory && (mode != "batch" || placement != CpuPlacement::SameCpu) {
            return Err(Exclusion::NotApplicable);
        }
        Ok((LaunchGroup::new(LaunchSubject::Alone, placement), task))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Transports of a display",
        figures: Some(|data| by_level::figures(&data.cells, &PLOT)),
        sentences: |data| against(&data.cells, &PLOT, "tcp", "rate", "rate"),
        responses: RESPONSES,
        ..ExperimentPage::PLAIN
    },
};

const EARLY: &str = "messages-early";
const POLLING: &str = "relay-polling";
const PIPELINED: &str = "pipelined-incremental";
const RELAY: &str = "relay-terminal";
const BYTES_OVER_UDP: &str = "byte-stream";
const TRANSPORTS: [&str; 10] = [
    "direct",
    "unix",
    "tcp",
    "websocket",
    "messages",
    EARLY,
    BYTES_OVER_UDP,
    PROCESS_TCP,
    RELAY,
    POLLING,
];

const PLOT: LevelPlot = LevelPlot {
    factor: "transport",
    order: &TRANSPORTS,
    panel_factors: &["mode", "placement"],
    pictures: &[
        ("Rectangles a second", &["rate"], true),
        ("CPU time of a rectangle", &["cpu"], true),
        ("Memory that is used", &[CODE.name, DATA.name], false),
    ],
};

const RESPONSE: (&str, &str) = ("display.transport", "rate");
const COMMAND: &str = "plumb run display.transport";

/// Early replies beside late ones, and messages beside TCP.
const REPLIES: [&[(&str, &str)]; 2] = [&[("transport", EARLY)], &[("transport", "messages")]];
const PROTOCOLS: [&[(&str, &str)]; 2] = [&[("transport", "messages")], &[("transport", "tcp")]];

/// TCP in the kernel beside one in a process.
const KERNEL: [&[(&str, &str)]; 2] = [&[("transport", "tcp")], &[("transport", PROCESS_TCP)]];

/// "About twice": from half as much more to twice as much more.
const ABOUT_TWICE: (f64, f64) = (1.5, 3.0);
/// Nine tenths of it, or more.
const AS_FAST: (f64, f64) = (0.9, f64::INFINITY);

/// What the first transport gives in a mode beside the second, with one CPU for both ends or one for each.
fn rates<'a>(
    evidence: &ClaimEvidence<'a>,
    transports: [&str; 2],
    mode: &str,
    is_shared: bool,
) -> Option<[&'a MeasuredCell<'a>; 2]> {
    let of = |transport: &str| {
        evidence.cells(RESPONSE.0, RESPONSE.1).find(|cell| {
            cell.is("transport", transport)
                && cell.is("mode", mode)
                && cell.is("placement", "same-cpu") == is_shared
        })
    };
    let [first, second] = transports.map(of);
    Some([first?, second?])
}

/// Table 6-2: a host whose server process polls a pipe and sends a stream, against a workstation whose messages are transactions.
fn host_and_workstation(
    evidence: &ClaimEvidence<'_>,
    mode: &'static str,
    bounds: (f64, f64),
) -> ClaimJudgment {
    let levels = (&[("transport", POLLING)][..], REPLIES[1]);
    let cases = pairs_within(evidence, RESPONSE, levels, bounds, |cell| cell.is("mode", mode));
    judge_all(cases.into_iter().collect(), COMMAND)
}

fn rate_of(evidence: &ClaimEvidence<'_>, transport: &str, mode: &str) -> Option<f64> {
    rate_at(evidence, RESPONSE.0, &[("transport", transport), ("mode", mode)])
}

/// Modes in which a message need not wait for what the one before shows.
fn is_throughput(cell: &MeasuredCell<'_>) -> bool {
    !cell.is("mode", "incremental")
}

/// How much less memory a client uses that has message transactions with a server than one with TCP in its process: least, middle, most.
fn saved(evidence: &ClaimEvidence<'_>, memory: &'static str) -> Option<[f64; 3]> {
    let of = |transport| cell_at(evidence, (EXPERIMENT.id, memory), &[("transport", transport)]);
    let (process, messages) = (of(PROCESS_TCP)?, of("messages")?);
    let ([low, high], [messages_low, messages_high]) = (process.ends()?, messages.ends()?);
    Some([low - messages_high, process.median() - messages.median(), high - messages_low])
}

/// Bytes that §9.2 says are saved, and where today's are found.
const fn saving(
    name: &'static str,
    bytes: f64,
    find: plumb_analysis::claim::FigureFinder,
) -> PublishedFigure {
    PublishedFigure {
        today: FigureToday::Found(find),
        ..PublishedFigure::alone(name, bytes, Unit::Bytes, "§9.2")
    }
}

/// "About 60 KB": from half of it to twice as much.
const ABOUT_60_KIB: (f64, f64) = (30_720.0, 122_880.0);
/// "At least 20 KB".
const FROM_20_KIB: (f64, f64) = (20_480.0, f64::INFINITY);

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "distributed.tcp.large-protocol",
        claim: "TCP is a very large and complicated protocol, and larger than PUP's (judged by the code that both ends use to draw: by plumb's TCP \
                in the client's process, and by a byte stream in PUP's manner).",
        judge: |evidence| {
            let levels = (&[("transport", BYTES_OVER_UDP)][..], KERNEL[1]);
            judge_all(order_cases(evidence, (EXPERIMENT.id, CODE.name), levels, |_| true), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.remote.memory-saved",
        claim: "A shared remote internet server saves each workstation about 60 KB of code and static data and at least 20 KB of stacks and buffers \
                (judged by what is used to draw by message transactions, and by plumb's TCP in the client's process).",
        figures: &[
            saving("code and constants", 61_440.0, |it| Some(saved(it, CODE.name)?[1])),
            saving("stacks and buffers, least", 20_480.0, |it| Some(saved(it, DATA.name)?[1])),
        ],
        judge: |evidence| {
            let of = |memory, bounds| {
                let [low, middle, high] = saved(evidence, memory)?;
                let ends = Some([low, high]);
                Some(ClaimCase::quantity("", memory.to_owned(), middle, ends, bounds, Unit::Bytes))
            };
            let cases = [of(CODE.name, ABOUT_60_KIB), of(DATA.name, FROM_20_KIB)];
            judge_all(cases.into_iter().flatten().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.construction",
        claim: "Construction is as fast from a timesharing host as from another workstation (judged by half to twice).",
        figures: &[
            table_entry("SUN IKP", 380.0, "Table 6-2", |it| {
                rate_of(it, "messages", "construction")
            }),
            table_entry("VAX IKP", 380.0, "Table 6-2", |it| rate_of(it, POLLING, "construction")),
        ],
        judge: |evidence| host_and_workstation(evidence, "construction", (0.5, 2.0)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.batch",
        claim: "Batch is much faster from a VAX than from another workstation (judged by a half or more).",
        figures: &[
            table_entry("SUN IKP", 190.0, "Table 6-2", |it| rate_of(it, "messages", "batch")),
            table_entry("VAX IKP", 350.0, "Table 6-2", |it| rate_of(it, POLLING, "batch")),
        ],
        judge: |evidence| host_and_workstation(evidence, "batch", (1.5, f64::INFINITY)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.incremental",
        claim: "Incremental display without pipelining is far slower from a VAX, whose server polls, than from another workstation (judged by \
                half or less).",
        figures: &[
            table_entry("SUN IKP", 29.0, "Table 6-2", |it| rate_of(it, "messages", "incremental")),
            table_entry("VAX IKP", 4.6, "Table 6-2", |it| rate_of(it, POLLING, "incremental")),
        ],
        judge: |evidence| host_and_workstation(evidence, "incremental", (0.0, 0.5)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.pipelined-incremental",
        claim: "Pipelined incremental display is much faster from a VAX than from another workstation (judged by a half or more).",
        figures: &[
            table_entry("SUN IKP", 44.0, "Table 6-2", |it| rate_of(it, "messages", PIPELINED)),
            table_entry("VAX IKP", 81.0, "Table 6-2", |it| rate_of(it, POLLING, PIPELINED)),
        ],
        judge: |evidence| host_and_workstation(evidence, PIPELINED, (1.5, f64::INFINITY)),
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.polling-is-slow",
        claim: "The unpipelined rate is that low because the server polls its pipe where others are notified (judged against TCP without a relay: \
                half or less).",
        judge: |evidence| {
            let levels = (&[("transport", POLLING)][..], PROTOCOLS[1]);
            let cases = pairs_within(evidence, RESPONSE, levels, (0.0, 0.5), |cell| {
                cell.is("mode", "incremental")
            });
            judge_all(cases.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.early-reply",
        claim: "Replying to a message before it is processed would be much faster than replying after (judged by a fifth or more in batches and \
                pipelined, with a CPU for each end).",
        judge: |evidence| {
            let [early, late] = REPLIES;
            let bounds = (1.2, f64::INFINITY);
            let cases = pairs_within(evidence, RESPONSE, (early, late), bounds, |cell| {
                is_throughput(cell) && !cell.is("placement", "same-cpu")
            });
            judge_all(cases.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.ikp.synchrony-costs-concurrency",
        claim: "Batch and pipelined rates are lower because synchronous messages leave less concurrency (judged against TCP).",
        judge: |evidence| {
            let levels = (&[("transport", "tcp")][..], REPLIES[1]);
            judge_all(order_cases(evidence, RESPONSE, levels, is_throughput), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.ikp-usually-better",
        claim: "A protocol specialised for the local network, IKP, usually performs significantly better than Internet protocols (judged by \
                messages against TCP, on one host).",
        judge: |evidence| {
            let [messages, tcp] = PROTOCOLS;
            judge_all(order_cases(evidence, RESPONSE, (messages, tcp), |_| true), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.implementation-beats-protocol",
        claim: "A protocol's implementation can affect performance more than its inherent properties (judged by when it \
                replies, beside messages instead of TCP, in any mode on one CPU).",
        judge: |evidence| {
            let better_first =
                |a: &'_ MeasuredCell<'_>, b: &'_ MeasuredCell<'_>| a.median() > b.median();
            let modes = ["batch", "incremental", "pipelined-incremental"].into_iter();
            let cases = modes.filter_map(|mode| {
                let of = |transport| {
                    cell_at(evidence, RESPONSE, &[("transport", transport), ("mode", mode)])
                };
                let (early, late, tcp) = (of(EARLY)?, of("messages")?, of("tcp")?);
                let [reply, protocol] = [early, tcp].map(|other| {
                    if better_first(late, other) { [late, other] } else { [other, late] }
                });
                gains_in_order(&format!("reply/protocol {mode}"), Some(reply), Some(protocol))
            });
            judge_any(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.kernel-beats-process",
        claim: "Text gets about twice as much by a transport in the kernel as by one in a process, whose context switches cost (judged by TCP of \
                the kernel and of plumb where messages are not waited for, 1.5 to 3 times).",
        figures: &[PublishedFigure::ratio("kernel to process", 2.0, "§6.2")],
        judge: |evidence| {
            let [kernel, process] = KERNEL;
            let cases = pairs_within(evidence, RESPONSE, (kernel, process), ABOUT_TWICE, |cell| {
                cell.is("mode", PIPELINED)
            });
            judge_all(cases.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.switches-cost-throughput",
        claim: "Context switches of a user-level transport show most in network-bound, throughput-intensive applications such as text (judged by \
                what TCP of the kernel gains over plumb's, more without waiting than with).",
        judge: |evidence| {
            let transports = ["tcp", PROCESS_TCP];
            let cases = [true, false].into_iter().filter_map(|is_shared| {
                let [streaming, waiting] = [PIPELINED, "incremental"]
                    .map(|mode| rates(evidence, transports, mode, is_shared));
                let placement = if is_shared { "one CPU" } else { "two CPUs" };
                gains_in_order(
                    &format!("gain {PIPELINED}/incremental, {placement}"),
                    streaming,
                    waiting,
                )
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.kernel-responds-faster",
        claim: "A protocol in the kernel is usually more responsive than the same on top of it (judged by TCP of the kernel and of plumb where \
                each reply is waited for).",
        judge: |evidence| {
            let [kernel, process] = KERNEL;
            let is_waiting = |cell: &MeasuredCell<'_>| cell.is("mode", "incremental");
            judge_all(order_cases(evidence, RESPONSE, (kernel, process), is_waiting), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.ikp-process-still-wins",
        claim: "IKP, a process under UNIX as well, beats PUP and IP in construction and batch rates (judged by message transactions against TCP \
                of the kernel and of plumb).",
        judge: |evidence| {
            let is_bulk = |cell: &MeasuredCell<'_>| {
                cell.is("mode", "construction") || cell.is("mode", "batch")
            };
            let cases = KERNEL
                .into_iter()
                .flat_map(|tcp| order_cases(evidence, RESPONSE, (REPLIES[1], tcp), is_bulk).cases);
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.ikp-is-the-optimum",
        claim: "On the local network IKP performs as well as can be achieved (judged by message transactions, nine tenths or more of what a Unix \
                socket and TCP give).",
        judge: |evidence| {
            let others = [&[("transport", "unix")][..], KERNEL[0], KERNEL[1]];
            let cases = others.into_iter().flat_map(|other| {
                pairs_within(evidence, RESPONSE, (REPLIES[1], other), AS_FAST, |_| true)
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.pup-responds-ip-carries",
        claim: "PUP protocols favour response and are light, Internet protocols favour throughput and are heavy (judged by a byte stream in PUP's \
                manner against the kernel's TCP: faster where each reply is waited for, slower in batches and construction).",
        judge: |evidence| {
            let stream = &[("transport", BYTES_OVER_UDP)][..];
            let responds = order_cases(evidence, RESPONSE, (stream, KERNEL[0]), |cell| {
                cell.is("mode", "incremental")
            });
            let carries = order_cases(evidence, RESPONSE, (KERNEL[0], stream), |cell| {
                cell.is("mode", "batch") || cell.is("mode", "construction")
            });
            judge_all(responds.cases.into_iter().chain(carries.cases).collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.transport.advantage-shrinks-below-telnet",
        claim: "IKP's advantage would be less over RTP/BSP and TCP themselves than over their TELNETs (judged by message transactions beside TCP, \
                and beside TCP behind a relay, on one CPU).",
        judge: |evidence| {
            let modes = ["batch", "incremental", PIPELINED].into_iter();
            let cases = modes.filter_map(|mode| {
                let of = |other| rates(evidence, ["messages", other], mode, true);
                gains_in_order(&format!("relay/TCP {mode}"), of(RELAY), of("tcp"))
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.rect.a-millisecond-an-item",
        claim: "Locally an item is defined and displayed in about 1 ms, the time of one local message transaction, so that any protocol with a \
                transaction an item is slower (judged by items that wait for two transactions: 2 to 5 times as long as in a local batch).",
        figures: &[PublishedFigure::ratio(
            "item with two transactions to one of a batch",
            3.0,
            "§5.4",
        )],
        judge: |evidence| {
            let of = |transport, mode| {
                let levels = [("transport", transport), ("mode", mode), ("placement", "same-cpu")];
                cell_at(evidence, RESPONSE, &levels)
            };
            let pair = of("direct", "batch").zip(of("messages", "incremental"));
            let label = "two transactions/batch".to_owned();
            let case = pair.map(|pair| ClaimCase::ratio_within("", label, pair, (2.0, 5.0)));
            judge_all(case.into_iter().collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
    PublishedClaim {
        id: "distributed.cpu.total-cost-is-higher",
        claim: "The total computation of a distributed program is almost always more than that of the equivalent centralised one (judged by the \
                CPU time of both ends, in one thread and by each transport).",
        judge: |evidence| {
            let direct = &[("transport", "direct")][..];
            let cases = ["unix", "tcp", "messages", PROCESS_TCP].into_iter().flat_map(|other| {
                let levels = (direct, &[("transport", other)][..]);
                order_cases(evidence, (EXPERIMENT.id, CPU.name), levels, |_| true).cases
            });
            judge_all(cases.collect(), COMMAND)
        },
        ..PublishedClaim::of(LANTZ)
    },
];
