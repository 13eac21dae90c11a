//! `fec.vs.arq`: codes that repair what is lost against asking for it again.
//!
//! Simulated: messages of 32 packets of 1,200 bytes over a path of 10 Mb/s. Lost packets are repaired by Reed–Solomon or RaptorQ with a quarter
//! more packets, wrong bits by Hamming's or Golay's code in each word; or what is lost is sent again, a round trip later, until it arrives.
//! Codes run on real bytes, and what they take is timed.

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::stats::quantile;
use plumb_harness::report::LaunchFault;
use plumb_report::figure::by_level::{self, LevelPlot};
use rand::{Rng as _, RngExt as _};
use raptorq::{Decoder, Encoder, EncodingPacket};

use crate::claims::order_cases;
use crate::codes::{DecodedWord, golay_decode, golay_encode, hamming_decode, hamming_encode};
use crate::gigabit::window_bdp::ROUND_TRIP;
use crate::prelude::*;
use crate::simulation::{self, ResponseValues, SimulatedCell, failed};

/// Goodput, residual errors and delays by scheme, loss and round trip.
pub static EXPERIMENT: Experiment = Experiment {
    id: "fec.vs.arq",
    study: "ipc",
    question: "When is it better to send repair packets ahead than to ask for what was lost?",
    hypothesis: "Repair ahead costs its share of the rate always, and saves a round trip or more where something is lost: it pays in delay \
                 where round trips are long and losses rare and spread, fails against bursts, and makes congestion worse.",
    factors: &[
        Factor::of_words(
            "loss",
            "packets lost: one in a hundred, or twenty, by themselves; as many in bursts of ten; as many as an overloaded link drops, which \
             more packets overload the more; or bits flipped, one in ten thousand or a thousand",
            &LOSSES,
        )
        .labelled(&[
            ("iid-1%", "1 % lost"),
            ("iid-5%", "5 % lost"),
            ("burst-5%", "5 % lost, in bursts of 10"),
            ("congestion", "a link overloaded by 5 %"),
            ("bits-1e-4", "a bit in 10,000 wrong"),
            ("bits-1e-3", "a bit in 1,000 wrong"),
        ]),
        Factor {
            fit: |first, levels| match first.text("loss") {
                Some(loss) if loss.starts_with("bits-") => words(&["arq", "hamming", "golay"]),
                _ => levels,
            },
            ..Factor::of_words("scheme", "what is done about it", &["arq", "reed-solomon", "raptorq", "hamming", "golay"])
        }
        .at(Words(&["arq", "reed-solomon", "raptorq"]))
        .labelled(&[
            ("arq", "sent again"),
            ("reed-solomon", "Reed–Solomon"),
            ("raptorq", "RaptorQ"),
            ("hamming", "Hamming"),
            ("golay", "Golay"),
        ]),
        ROUND_TRIP.at(Words(&["1ms", "20ms", "100ms", "200ms"])).at_quick(Words(&["1ms", "100ms"])),
    ],
    responses: &[
        ResponseVariable::rate("goodput", "bytes of messages that arrive intact a second of the path's time"),
        ResponseVariable::share("residual", Better::Lower, "share of messages that never arrive intact"),
        ResponseVariable::time("delay", "time from the first packet of a message to its last byte, of those that arrive; half of them"),
        ResponseVariable::time("delay-p99", "the same, 99 of a hundred of them"),
        ResponseVariable::time("cpu", "time of encoding and decoding a byte of a message, measured here"),
    ],
    plan_cell: |point| {
        let is_of_bits = |scheme: &str| matches!(scheme, "hamming" | "golay");
        let is_bits = point.text("loss").is_some_and(|loss| loss.starts_with("bits-"));
        match point.text("scheme") {
            Some("arq") if point.response == "cpu" => Err(Exclusion::NotApplicable),
            // No packet of 1,200 bytes ever arrives.
            Some("arq") if point.text("loss") == Some("bits-1e-3") && point.response.starts_with("delay") => {
                Err(Exclusion::NotApplicable)
            }
            Some(scheme) if scheme == "arq" || is_of_bits(scheme) == is_bits => {
                let (_, task) = simulation::cell(EXPERIMENT.id, point);
                // The time of the codes is real.
                Ok((LaunchGroup::alone(), task))
            }
            _ => Err(Exclusion::NotApplicable),
        }
    },
    analysis: ExperimentAnalysis { expectations: EXPECTATIONS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage {
        title: "Forward error correction and retransmission",
        figures: Some(|data| by_level::figures(&data.cells, &SCHEME)),
        responses: &[
            ("goodput", "goodput"),
            ("residual", "messages that never arrive"),
            ("delay", "delay of a message"),
            ("delay-p99", "delay, 99 %"),
            ("cpu", "CPU time a byte"),
        ],
        ..ExperimentPage::PLAIN
    },
};

const LOSSES: [&str; 6] = ["iid-1%", "iid-5%", "burst-5%", "congestion", "bits-1e-4", "bits-1e-3"];

const SCHEME: LevelPlot = LevelPlot {
    factor: "scheme",
    order: &["arq", "reed-solomon", "raptorq", "hamming", "golay"],
    panel_factors: &["loss"],
    pictures: &[
        ("Delay of a message", &["delay", "delay-p99"], true),
        ("Goodput", &["goodput"], false),
        ("Messages that never arrive", &["residual"], false),
        ("CPU time a byte", &["cpu"], true),
    ],
};

/// Packets of a message, and repair packets.
const SOURCE: usize = 32;
const REPAIR: usize = 8;
/// Bytes of a packet.
const PACKET: usize = 1_200;
/// Messages of a block.
const MESSAGES: usize = 300;
/// Rate of the path, in bits a second.
const RATE: f64 = 10e6;
/// Times that something is sent again before it is given up.
const ATTEMPTS: u32 = 50;

/// How one message ended: seconds until it was whole, if it ever was, and packets sent.
struct MessageOutcome {
    delay: Option<f64>,
    sent: f64,
}

/// Simulates one setting.
pub(crate) fn simulate(cell: &SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault> {
    let rtt = cell.span("rtt")?.as_secs_f64();
    let scheme = cell.level("scheme");
    let mut path = LossyPath::new(cell.level("loss"), scheme != "arq", Seed(cell.run.seed))
        .ok_or_else(|| failed("no such loss"))?;
    let mut random = Seed(cell.run.seed).stream("messages");
    let mut message = vec![0; SOURCE * PACKET];
    let mut outcomes = Vec::with_capacity(MESSAGES);
    let watch = cell.run.watch;
    let mut in_codes = 0;
    for _ in 0..MESSAGES {
        random.fill_bytes(&mut message);
        let began = watch.begin();
        let outcome = match scheme {
            "arq" => sent_again(&mut path, rtt),
            "reed-solomon" => reed_solomon(&message, &mut path, rtt)?,
            "raptorq" => raptorq(&message, &mut path, rtt),
            _ => words_of_code(scheme, &message, &mut path, rtt),
        };
        in_codes += watch.end().saturating_sub(began);
        outcomes.push(outcome);
    }
    let mut delays: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.delay).collect();
    delays.sort_by(f64::total_cmp);
    let sent: f64 = outcomes.iter().map(|outcome| outcome.sent).sum();
    let seconds = sent * (PACKET * 8) as f64 / RATE;
    let intact = delays.len() as f64 * message.len() as f64;
    let mut values = vec![
        ("goodput", intact / seconds),
        ("residual", 1.0 - delays.len() as f64 / MESSAGES as f64),
    ];
    if !delays.is_empty() {
        values.push(("delay", quantile::of_sorted(&delays, 0.5) * 1e9));
        values.push(("delay-p99", quantile::of_sorted(&delays, 0.99) * 1e9));
    }
    if scheme != "arq" {
        values.push(("cpu", watch.ns(in_codes) / (MESSAGES * message.len()) as f64));
    }
    Ok(values)
}

/// A path that loses packets or flips bits.
struct LossyPath {
    random: RandomStream,
    /// Share of packets lost, and the mean length of a burst of them.
    loss: f64,
    burst: f64,
    /// Share of bits flipped.
    bits: f64,
    is_bad: bool,
}

impl LossyPath {
    /// One of this loss; `repairs` says whether a quarter more packets are sent.
    fn new(loss: &str, repairs: bool, seed: Seed) -> Option<Self> {
        let (loss, burst, bits) = match loss {
            "iid-1%" => (0.01, 1.0, 0.0),
            "iid-5%" => (0.05, 1.0, 0.0),
            "burst-5%" => (0.05, 10.0, 0.0),
            // Traffic beyond the rate is dropped, whichever flow sends it.
            "congestion" => (
                1.0 - 1.0
                    / (1.05 * if repairs { 1.0 + REPAIR as f64 / SOURCE as f64 } else { 1.0 }),
                1.0,
                0.0,
            ),
            "bits-1e-4" => (0.0, 1.0, 1e-4),
            "bits-1e-3" => (0.0, 1.0, 1e-3),
            _ => return None,
        };
        Some(Self { random: seed.stream("path"), loss, burst, bits, is_bad: false })
    }

    fn draw(&mut self) -> f64 {
        self.random.random()
    }

    /// Whether the next packet of so many bytes arrives intact.
    fn carries(&mut self, bytes: usize) -> bool {
        if self.bits > 0.0 {
            return self.draw() < (1.0 - self.bits).powf(8.0 * bytes as f64);
        }
        // Gilbert's chain: bad packets are lost.
        let change =
            if self.is_bad { 1.0 / self.burst } else { self.loss / (1.0 - self.loss) / self.burst };
        if self.burst > 1.0 {
            self.is_bad ^= self.draw() < change;
            return !self.is_bad;
        }
        self.draw() >= self.loss
    }

    /// The bits of so many that are flipped.
    fn flips(&mut self, count: u32) -> u32 {
        (0..count).fold(0, |word, bit| word | u32::from(self.draw() < self.bits) << bit)
    }
}

/// Seconds until the last of so many packets has arrived.
fn arrival(packets: usize, rtt: f64) -> f64 {
    packets as f64 * (PACKET * 8) as f64 / RATE + rtt / 2.0
}

/// Each lost packet is sent again a round trip after it was, until it arrives.
fn sent_again(path: &mut LossyPath, rtt: f64) -> MessageOutcome {
    let (mut sent, mut rounds) = (0_u32, 0);
    for _ in 0..SOURCE {
        let mut attempt = 1;
        while !path.carries(PACKET) && attempt < ATTEMPTS {
            attempt += 1;
        }
        sent += attempt;
        rounds = rounds.max(attempt - 1);
    }
    let arrived = arrival(SOURCE, rtt) + f64::from(rounds) * rtt;
    MessageOutcome { delay: (rounds < ATTEMPTS - 1).then_some(arrived), sent: f64::from(sent) }
}

/// The message from whichever packets arrive, by Reed–Solomon.
fn reed_solomon(
    message: &[u8],
    path: &mut LossyPath,
    rtt: f64,
) -> Result<MessageOutcome, LaunchFault> {
    let wrong = |error: reed_solomon_simd::Error| failed(error.to_string());
    let repair =
        reed_solomon_simd::encode(SOURCE, REPAIR, message.chunks(PACKET)).map_err(wrong)?;
    let arrives: Vec<bool> = (0..SOURCE + REPAIR).map(|_| path.carries(PACKET)).collect();
    let sources = message.chunks(PACKET).enumerate().filter(|(index, _)| arrives[*index]);
    let repairs = repair.iter().enumerate().filter(|(index, _)| arrives[SOURCE + index]);
    let restored = match reed_solomon_simd::decode(SOURCE, REPAIR, sources, repairs) {
        Ok(restored) => restored,
        Err(reed_solomon_simd::Error::NotEnoughShards { .. }) => {
            return Ok(outcome(&arrives, false, rtt));
        }
        Err(error) => return Err(wrong(error)),
    };
    let is_right =
        restored.iter().all(|(index, bytes)| bytes == &message[index * PACKET..][..PACKET]);
    if is_right {
        Ok(outcome(&arrives, true, rtt))
    } else {
        Err(failed("Reed–Solomon restored other bytes"))
    }
}

/// The same by RaptorQ.
fn raptorq(message: &[u8], path: &mut LossyPath, rtt: f64) -> MessageOutcome {
    let encoder = Encoder::with_defaults(message, u16::try_from(PACKET).expect("a packet"));
    let packets = encoder.get_encoded_packets(u32::try_from(REPAIR).expect("few"));
    let arrives: Vec<bool> = packets.iter().map(|_| path.carries(PACKET)).collect();
    let mut decoder = Decoder::new(encoder.get_config());
    let arrived = packets.into_iter().zip(&arrives).filter(|(_, arrives)| **arrives);
    let mut arrived = arrived.map(|(packet, _): (EncodingPacket, _)| packet);
    let found = arrived.find_map(|packet| decoder.decode(packet));
    outcome(&arrives, found.is_some_and(|found| found == message), rtt)
}

/// What happens to a message: it is whole when enough packets have arrived.
fn outcome(arrives: &[bool], is_whole: bool, rtt: f64) -> MessageOutcome {
    let needed = arrives.iter().scan(0, |count, arrives| {
        *count += usize::from(*arrives);
        Some(*count)
    });
    let packets = needed.take_while(|count| *count < SOURCE).count() + 1;
    MessageOutcome { delay: is_whole.then(|| arrival(packets, rtt)), sent: arrives.len() as f64 }
}

/// A message in words of a code: it is lost by one word that cannot be corrected, or is corrected to another.
fn words_of_code(scheme: &str, message: &[u8], path: &mut LossyPath, rtt: f64) -> MessageOutcome {
    let is_intact = |word: DecodedWord, sent: u16| matches!(word, DecodedWord::Data { data, .. } if data == sent);
    let mut whole = true;
    if scheme == "hamming" {
        for nibble in message.iter().flat_map(|byte| [byte >> 4, byte & 0xf]) {
            let flips = u8::try_from(path.flips(8)).expect("eight bits");
            whole &= is_intact(hamming_decode(hamming_encode(nibble) ^ flips), nibble.into());
        }
    } else {
        for three in message.chunks(3) {
            let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
            for data in [bits >> 12, bits & 0xfff] {
                let data = u16::try_from(data).expect("twelve bits");
                whole &= is_intact(golay_decode(golay_encode(data) ^ path.flips(24)), data);
            }
        }
    }
    // Both codes double the bits.
    let packets = 2 * SOURCE;
    MessageOutcome { delay: whole.then(|| arrival(packets, rtt)), sent: packets as f64 }
}

const EXPECTATIONS: &[Expectation] = &[
    Expectation {
        id: "ipc.fec.saves-round-trips",
        statement: "Where 1 % is lost and a round trip takes 100 ms or more, 99 of a hundred messages arrive sooner with repair packets.",
        basis: "arithmetic: 27 % of messages of 32 packets lose one, and wait a round trip for it",
        judge: |evidence| {
            let (repair, again) = (&[("scheme", "reed-solomon")][..], &[("scheme", "arq")][..]);
            let cases =
                order_cases(evidence, (EXPERIMENT.id, "delay-p99"), (repair, again), |cell| {
                    cell.is("loss", "iid-1%") && !cell.is("rtt", "1ms") && !cell.is("rtt", "20ms")
                });
            judge_all(cases, "plumb run fec.vs.arq --set loss=iid-1% --set rtt=100ms,200ms")
        },
    },
    Expectation {
        id: "ipc.fec.worsens-congestion",
        statement: "Where losses come of congestion, repair packets leave less goodput than sending again.",
        basis: "arithmetic: a quarter more packets overload a full link by as much",
        judge: |evidence| {
            let (again, repair) = (&[("scheme", "arq")][..], &[("scheme", "reed-solomon")][..]);
            let cases =
                order_cases(evidence, (EXPERIMENT.id, "goodput"), (again, repair), |cell| {
                    cell.is("loss", "congestion")
                });
            judge_all(cases, "plumb run fec.vs.arq --set loss=congestion")
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of 20,000 words in which more bits are wrong than a code of so many bits corrects.
    fn failures(bits: u32, decode: impl Fn(u32) -> bool, share: f64) -> f64 {
        let mut path = LossyPath {
            random: Seed(4).stream("path"),
            loss: 0.0,
            burst: 1.0,
            bits: share,
            is_bad: false,
        };
        let failed = (0..20_000).filter(|_| !decode(path.flips(bits))).count();
        failed as f64 / 20_000.0
    }

    fn is_near(seen: f64, expected: f64, trials: f64) -> bool {
        // Three standard deviations of a binomial share.
        (seen - expected).abs() < 3.0 * (expected * (1.0 - expected) / trials).sqrt()
    }

    fn choose(n: u32, k: u32) -> f64 {
        (0..k).fold(1.0, |product, i| product * f64::from(n - i) / f64::from(i + 1))
    }

    /// The probability of more than `most` errors in `n`.
    fn more_than(most: u32, n: u32, share: f64) -> f64 {
        let exactly = |k: u32| {
            choose(n, k) * share.powi(k.cast_signed()) * (1.0 - share).powi((n - k).cast_signed())
        };
        1.0 - (0..=most).map(exactly).sum::<f64>()
    }

    #[test]
    fn words_fail_as_often_as_their_formulas_say() {
        let is = |word: DecodedWord, sent: u16| matches!(word, DecodedWord::Data { data, .. } if data == sent);
        let hamming = failures(
            8,
            |flips| is(hamming_decode(hamming_encode(9) ^ u8::try_from(flips).unwrap()), 9),
            0.05,
        );
        // Of three errors and more some look like one, none of them like what was sent.
        assert!(is_near(hamming, more_than(1, 8, 0.05), 2e4), "{hamming}");
        let golay = failures(24, |flips| is(golay_decode(golay_encode(777) ^ flips), 777), 0.08);
        assert!(is_near(golay, more_than(3, 24, 0.08), 2e4), "{golay}");
    }

    #[test]
    fn reed_solomon_fails_where_more_are_lost_than_it_repairs() {
        let mut path = LossyPath::new("iid-5%", true, Seed(5)).unwrap();
        path.loss = 0.15;
        let message: Vec<u8> = (0..=250).cycle().take(SOURCE * PACKET).collect();
        let trials = 2_000;
        let lost = (0..trials)
            .filter(|_| reed_solomon(&message, &mut path, 0.1).unwrap().delay.is_none())
            .count();
        let expected = more_than(8, 40, 0.15);
        let seen = lost as f64 / f64::from(trials);
        assert!(is_near(seen, expected, f64::from(trials)), "{seen}, {expected} expected");
    }

    #[test]
    fn raptorq_decodes_from_any_packets_but_for_one_in_256() {
        let message: Vec<u8> = (0..=250).cycle().take(SOURCE * PACKET).collect();
        let encoder = Encoder::with_defaults(&message, 1_200);
        let mut random = Seed(6).stream("drops");
        let decodes = (0..400).filter(|_| {
            let mut packets = encoder.get_encoded_packets(8);
            // As many as the message has.
            while packets.len() > SOURCE {
                packets.swap_remove(random.random_range(0..packets.len()));
            }
            let mut decoder = Decoder::new(encoder.get_config());
            packets
                .into_iter()
                .find_map(|packet| decoder.decode(packet))
                .is_some_and(|found| found == message)
        });
        let failed = 400 - decodes.count();
        assert!(failed <= 8, "{failed} of 400");
    }

    #[test]
    fn sending_again_takes_one_send_in_one_minus_the_loss() {
        let mut path = LossyPath::new("iid-5%", false, Seed(7)).unwrap();
        let outcomes: Vec<MessageOutcome> =
            (0..2_000).map(|_| sent_again(&mut path, 0.1)).collect();
        let mean =
            outcomes.iter().map(|outcome| outcome.sent).sum::<f64>() / 2_000.0 / SOURCE as f64;
        assert!((mean * 0.95 - 1.0).abs() < 0.005, "{mean}");
        // One of (1 − p)^32 loses nothing.
        let at_once = outcomes.iter().filter(|outcome| outcome.sent < SOURCE as f64 + 0.5).count()
            as f64
            / 2_000.0;
        assert!(is_near(at_once, 0.95_f64.powi(32), 2e3), "{at_once}");
    }

    #[test]
    fn bursts_lose_as_much_in_runs_of_ten() {
        let mut path = LossyPath::new("burst-5%", true, Seed(8)).unwrap();
        let seen: Vec<bool> = (0..200_000).map(|_| path.carries(PACKET)).collect();
        let lost = seen.iter().filter(|carried| !**carried).count() as f64;
        let runs = seen.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
        assert!(
            (lost / 2e5 - 0.05).abs() < 0.006 && (lost / runs - 10.0).abs() < 1.0,
            "{lost} in {runs}"
        );
    }
}
