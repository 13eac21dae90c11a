//! `host.model`: which part of a host of 2001 bounds a transfer, by a model with the document's own figures.
//!
//! Simulated. A packet costs a host cycles, which a faster clock shortens, and time of memory for each copy of its bytes, which it does not; its
//! bus is a link in front of the network's. Both costs follow from two published peaks, 335 Mb/s at 400 MHz and 420 Mb/s at 733 MHz, and from
//! the difference to loopback; everything else is predicted.

use plumb_harness::report::LaunchFault;
use plumb_report::figure::by_level::{self, LevelPlot};

use crate::claims::{LANTZ, WEIGLE, gains_in_order, medians_within, order_cases, stack_order};
use crate::pages::best_tile;
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell, failed};

/// Throughput by what a host is made of.
pub static EXPERIMENT: Experiment = Experiment {
    id: "host.model",
    study: "gigabit",
    question: "What bounds a transfer of a host of 2001: processor, copies, bus, card or link?",
    hypothesis: "The processor bounds it, at less than half of a gigabit; fewer copies help, a wider bus and a faster link do not, and \
                 a processor on the card makes it worse. Links that double each year leave the host ever further behind.",
    factors: &[
        Factor::of_words(
            "change",
            "what is different of a PC of 733 MHz with two copies a byte, a PCI bus of 32 bits and 33 MHz, and gigabit Ethernet; or \
             the year whose processor and link there are, of the document's growth",
            &CHANGES,
        )
        .labelled(&[
            ("none", "PC of 733 MHz"),
            ("400mhz", "400 MHz"),
            ("wide-bus", "bus of 64 bits, 66 MHz"),
            ("one-copy", "one copy a byte"),
            ("no-copy", "no copy"),
            ("card", "protocol on a card of 200 MHz"),
            ("jumbo", "packets of 9,000 bytes"),
            ("no-stack", "a processor that takes no time"),
            ("no-stack-wide-bus", "the same, bus of 64 bits"),
            ("tuned", "jumbos, one copy, wide bus"),
        ]),
        Factor::of_words("link", "rate of the network's link", &["1gbit", "10gbit"]).at_quick(Words(&["1gbit", "10gbit"])),
    ],
    responses: &[
        ResponseVariable::rate("throughput", "goodput of TCP, bytes a second"),
        ResponseVariable::share("filled", Better::Higher, "the same, as a share of the link's rate"),
        ResponseVariable::share("busy", Better::Lower, "share of time that the receiving host's processor is busy"),
    ],
    plan_cell: |point| {
        let is_year = point.text("change").is_some_and(|change| change.starts_with("year-"));
        if is_year && point.text("link") != Some("1gbit") {
            // The year has a link of its own.
            return Err(Exclusion::NotApplicable);
        }
        Ok(simulation::cell(EXPERIMENT.id, point))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "A model of a host",
        figures: Some(|data| by_level::figures(&data.cells, &CHANGE)),
        tiles: |data| best_tile(data, "throughput", "highest throughput of the model", false),
        responses: &[("throughput", "throughput"), ("filled", "share of the link"), ("busy", "processor busy")],
        ..ExperimentPage::PLAIN
    },
};

const CHANGES: [&str; 14] = [
    "none",
    "400mhz",
    "wide-bus",
    "one-copy",
    "no-copy",
    "card",
    "jumbo",
    "tuned",
    "no-stack",
    "no-stack-wide-bus",
    "year-1988",
    "year-1993",
    "year-1998",
    "year-2003",
];

const CHANGE: LevelPlot = LevelPlot {
    factor: "change",
    order: &CHANGES,
    panel_factors: &["link"],
    pictures: &[
        ("Throughput", &["throughput"], true),
        ("Share of the link", &["filled"], false),
        ("Processor busy", &["busy"], false),
    ],
};

/// What a host is made of.
#[derive(Clone, Copy, Debug)]
struct HostModel {
    clock_hz: f64,
    copies: f64,
    bus: f64,
    link: f64,
    mtu: u32,
    takes_time: bool,
}

/// Cycles of a packet that is received or sent. Received data come with half an acknowledgement: (1/335 − 1/420 Mb/s) × 11,680 b of payload
/// are 7.06 µs, which 1/400 − 1/733 MHz save of one and a half packets.
const CYCLES: f64 = 4_142.0;
/// Seconds of memory for each copy of a byte, of which there are two: of the 34.9 µs at 400 MHz what is left by 15.5 of cycles and 11.7 of
/// the bus.
const COPY: f64 = 7.7e-6 / 1_500.0 / 2.0;
/// The published buses, in bits a second.
const PCI: f64 = 1.056e9;
const PCI_WIDE: f64 = 4.224e9;

impl HostModel {
    fn of(change: &str, link: f64) -> Option<Self> {
        let plain =
            Self { clock_hz: 733e6, copies: 2.0, bus: PCI, link, mtu: 1_500, takes_time: true };
        Some(match change {
            "none" => plain,
            "400mhz" => Self { clock_hz: 400e6, ..plain },
            "wide-bus" => Self { bus: PCI_WIDE, ..plain },
            "one-copy" => Self { copies: 1.0, ..plain },
            "no-copy" => Self { copies: 0.0, ..plain },
            // As the two processors of 88 MHz of an AceNIC do, or a little better; the copies to the card are saved.
            "card" => Self { clock_hz: 200e6, copies: 1.0, ..plain },
            "jumbo" => Self { mtu: 9_000, ..plain },
            "tuned" => Self { mtu: 9_000, copies: 1.0, bus: PCI_WIDE, ..plain },
            "no-stack" => Self { takes_time: false, ..plain },
            "no-stack-wide-bus" => Self { takes_time: false, bus: PCI_WIDE, ..plain },
            year => {
                let years = f64::from(year.strip_prefix("year-")?.parse::<u16>().ok()?) - 1_998.0;
                // 50 % a year around 400 MHz in 1998; 10 Mb/s in 1988 to 6.4 Gb/s in 1998; the bus was never the bound before.
                let link = 6.4e9 * 640_f64.powf(years / 10.0);
                Self { clock_hz: 400e6 * 1.5_f64.powf(years), link, bus: link.max(PCI), ..plain }
            }
        })
    }

    /// The two costs of a packet: its own, and of each byte, in picoseconds.
    fn costs(&self) -> (f64, f64) {
        if self.takes_time {
            (CYCLES / self.clock_hz * 1e12, COPY * self.copies * 1e12)
        } else {
            (0.0, 0.0)
        }
    }
}

/// Simulates one setting: packets cross the bus, are on the link, cross the other bus and cost the receiver.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let change = cell.level("change");
    let model = HostModel::of(change, cell.rate("link")?)
        .ok_or_else(|| failed(format!("there is no change '{change}'")))?;
    let (packet, byte) = model.costs();
    // The bus carries each byte in turn with the processor, which waits for it.
    let bus = 8e12 / model.bus;
    let bits = f64::from(model.mtu) * 8.0;
    let each =
        (packet + (byte + if model.takes_time { bus } else { 0.0 }) * f64::from(model.mtu)) / 1e12;
    // Some 4,000 packets at the rate of whatever is slowest.
    let rate = (bits / each.max(1e-9)).min(model.link).min(model.bus);
    let seconds = 6_000.0 * bits / rate;
    let text = format!(
        "duration = \"{:.0}us\"\nwarmup = \"{:.0}us\"\nmtu = {}\n\
         [[link]]\nbetween = [\"left\", \"bus1\"]\nlink = \"rate={:.0}bit,delay=1us\"\n\
         [[link]]\nbetween = [\"bus1\", \"bus2\"]\nlink = \"rate={:.0}bit,delay=10us,overhead=38,limit=1000packets\"\n\
         [[link]]\nbetween = [\"bus2\", \"right\"]\nlink = \"rate={:.0}bit,delay=1us,limit=1000packets\"\n\
         [[flow]]\nfrom = \"left\"\nto = \"right\"\ncongestion = \"fixed:{}\"\ntimestamps = false\n\
         [[processor]]\nhosts = \"right\"\nper_packet = \"{:.0}ns\"\nper_byte = \"{:.0}ps\"\nring = 1024\n",
        seconds * 1e6,
        seconds * 1e6 / 3.0,
        model.mtu,
        model.bus,
        model.link,
        model.bus,
        64 * model.mtu,
        packet / 1e3,
        if model.takes_time { byte + bus } else { 0.0 },
    );
    let report = cell.simulate(&text)?;
    let goodput = report.goodput();
    Ok(vec![
        ("throughput", goodput / 8.0),
        ("filled", goodput / model.link),
        ("busy", report.processors.first().map_or(0.0, |processor| processor.busy_share)),
    ])
}

/// Half the link, and less.
const HALF: (f64, f64) = (0.0, 0.5);

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "gigabit.peak.half-the-link",
        claim: "Even with all tuning TCP between two machines uses at best half of a gigabit link (judged by a model of the document's \
                PCs, with packets of 1,500 and of 9,000 bytes).",
        historical: Some("500 Mb/s, half of the link, in the best general case"),
        figures: &[PublishedFigure::comparable(
            "share of the link",
            0.5,
            Unit::Share,
            "best general case: 500 Mb/s",
        )],
        judge: |evidence| {
            let cases = medians_within(evidence, (EXPERIMENT.id, "filled"), HALF, |cell| {
                cell.is("link", "1gbit")
                    && ["none", "400mhz", "jumbo"].contains(&cell.level("change"))
            });
            judge_all(cases, "plumb run host.model")
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.bus.pci-ceiling",
        claim: "The I/O bus bounds what a PC can transfer, at 1.056 and 4.224 Gb/s (judged by a model whose processor takes \
                no time: over a link of 10 Gb/s it carries nine tenths of the bus, or more, and no more than all of it).",
        historical: Some("1.056 Gb/s and 4.224 Gb/s"),
        figures: &[
            PublishedFigure::alone(
                "bus of 32 bits at 33 MHz",
                1.056e9 / 8.0,
                Unit::BytesPerSecond,
                "1.056 Gb/s",
            ),
            PublishedFigure::alone(
                "bus of 64 bits at 66 MHz",
                4.224e9 / 8.0,
                Unit::BytesPerSecond,
                "4.224 Gb/s",
            ),
        ],
        judge: |evidence| {
            let mut found = ClaimCases::default();
            for (change, bus) in [("no-stack", PCI), ("no-stack-wide-bus", PCI_WIDE)] {
                let bounds = (0.9 * bus / 8.0, bus / 8.0);
                let cases =
                    medians_within(evidence, (EXPERIMENT.id, "throughput"), bounds, |cell| {
                        cell.is("link", "10gbit") && cell.is("change", change)
                    });
                found.cases.extend(cases.cases);
            }
            judge_all(found, "plumb run host.model --set link=10gbit")
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.growth.links-outrun-buses",
        claim: "Links of 10 Gb/s exceed what a PC's I/O bus can carry (judged by a model: even the bus of 64 bits leaves half of such a link \
                idle, or more, where the processor takes no time).",
        judge: |evidence| {
            let cases = medians_within(evidence, (EXPERIMENT.id, "filled"), HALF, |cell| {
                cell.is("link", "10gbit") && cell.level("change").starts_with("no-stack")
            });
            judge_all(cases, "plumb run host.model --set link=10gbit")
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.growth.gap-widens",
        claim: "The gap between what links offer and what a host can fill widens (judged by a model with the document's growth of processors \
                and links: the share that a host fills falls from each fifth year to the next).",
        judge: |evidence| {
            let mut found = ClaimCases::default();
            for (year, next) in
                [("year-1988", "year-1993"), ("year-1993", "year-1998"), ("year-1998", "year-2003")]
            {
                let (year, next) = (&[("change", year)][..], &[("change", next)][..]);
                found.cases.extend(
                    order_cases(evidence, (EXPERIMENT.id, "filled"), (year, next), |_| true).cases,
                );
            }
            judge_all(found, "plumb run host.model")
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.copies.fewer-carry-more",
        claim: "Fewer copies between user and network carry more (judged by a model in which a copy costs what the published peaks leave).",
        judge: |evidence| {
            let (one, two) = (&[("change", "one-copy")][..], &[("change", "none")][..]);
            stack_order(evidence, (EXPERIMENT.id, "throughput"), (one, two), |_| true)
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.peak.visualization-is-stack-bound",
        claim: "Remote visualization of large data sets is bound by the performance of the TCP/IP stack (judged by a model of a bulk transfer: a \
                processor that takes no time gains more than a wider bus does).",
        judge: |evidence| {
            let of = |change| {
                [throughput(evidence, change, "1gbit"), throughput(evidence, "none", "1gbit")]
            };
            stack_gains_more(of("no-stack"), of("wide-bus"))
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "gigabit.peak.software-bottleneck-persists",
        claim: "Removing the hardware bottleneck of the host interface (InfiniBand) leaves the bottleneck in software, TCP/IP (judged by a model with \
                a link of 10 Gb/s: beside a wider bus, a processor that takes no time gains more than that bus did).",
        judge: |evidence| {
            let [none, wide, free] = ["none", "wide-bus", "no-stack-wide-bus"]
                .map(|change| throughput(evidence, change, "10gbit"));
            stack_gains_more([free, wide], [wide, none])
        },
        ..PublishedClaim::of(WEIGLE)
    },
    PublishedClaim {
        id: "distributed.nic.smart-controllers-are-slower",
        claim: "Microprocessor-based network controllers are often slower than simple ones with fixed logic (judged by a model of a card that \
                carries out the protocol at 200 MHz, beside a host of 733 MHz).",
        judge: |evidence| {
            let levels = (&[("change", "none")][..], &[("change", "card")][..]);
            stack_order(evidence, (EXPERIMENT.id, "throughput"), levels, |cell| {
                cell.is("link", "1gbit")
            })
        },
        ..PublishedClaim::of(LANTZ)
    },
];

fn throughput<'a>(
    evidence: &ClaimEvidence<'a>,
    change: &str,
    link: &str,
) -> Option<&'a MeasuredCell<'a>> {
    let mut cells = evidence.cells(EXPERIMENT.id, "throughput");
    cells.find(|cell| cell.is("change", change) && cell.is("link", link))
}

/// "The stack is what bounds": what is gained without it, beside what a wider bus gains.
fn stack_gains_more(
    stack: [Option<&MeasuredCell<'_>>; 2],
    bus: [Option<&MeasuredCell<'_>>; 2],
) -> ClaimJudgment {
    let both = |[better, worse]: [Option<_>; 2]| Some([better?, worse?]);
    let case = gains_in_order("gain without the stack/by the bus", both(stack), both(bus));
    judge_all(case.into_iter().collect(), "plumb run host.model")
}
