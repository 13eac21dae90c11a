//! One packet at a time to a peer that returns it: what to send next, and what came back.
//!
//! Pure: whoever drives it has the socket and the clock, so that the kernel's stack and plumb's are
//! timed by the same code. Each payload begins with its number and goes on with a pattern of it, so that
//! nothing old, foreign or broken is taken for the answer. Left out: sockets.

use plumb_analysis::document::stack::Exchange;
use plumb_analysis::summary::single;
use plumb_base::time::{Instant, Span};

/// Bytes of the number that each payload begins with: the shortest payload.
pub const PAYLOAD_MIN: usize = 8;

/// Frames of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Bytes on Ethernet, without the check sequence.
    pub frame_bytes: usize,
    /// Bytes of payload.
    pub payload_bytes: usize,
    /// Round trips.
    pub count: u64,
}

/// Why a course is over before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// So many in a row were not answered.
    Silent(u32),
    /// Somebody says that it is of no use.
    Refused(String),
}

/// How long to wait, and when to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For one answer.
    pub timeout: Span,
    /// This many in a row without an answer end the course.
    pub silent_max: u32,
}

/// The stages, and what became of them so far.
#[derive(Debug)]
pub struct Course {
    remote: String,
    stages: Vec<Stage>,
    results: Vec<(Exchange, Vec<f64>)>,
    patience: Patience,
    /// Of the packet to be sent, or under way.
    number: u64,
    /// Its stage.
    stage: usize,
    /// Its place there; the one at 0 finds the peer and does not count.
    step: u64,
    outstanding: Option<Instant>,
    /// Packets sent, greetings included.
    begun: u64,
    /// Whether any was answered.
    heard: bool,
    silent: u32,
    halt: Option<Halt>,
    payload: Vec<u8>,
}

impl Course {
    /// A course that has not begun.
    pub fn new(remote: String, stages: Vec<Stage>, patience: Patience) -> Self {
        Self {
            remote,
            stages,
            results: Vec::new(),
            patience,
            number: 0,
            stage: 0,
            step: 0,
            outstanding: None,
            begun: 0,
            heard: false,
            silent: 0,
            halt: None,
            payload: Vec::new(),
        }
    }

    /// Whether nothing more is to be sent.
    pub fn is_over(&self) -> bool {
        self.halt.is_some() || (self.outstanding.is_none() && self.stage == self.stages.len())
    }

    /// Why it ended before its end.
    pub fn halt(&self) -> Option<&Halt> {
        self.halt.as_ref()
    }

    /// How many packets were sent, if not one of them was answered.
    pub fn unanswered(&self) -> Option<u64> {
        (self.begun > 0 && !self.heard).then_some(self.begun)
    }

    /// Round trips begun and wanted, in all, for a progress bar.
    pub fn progress(&self) -> (u64, u64) {
        let done = self.results.iter().map(|(exchange, _)| exchange.sent).sum();
        (done, self.stages.iter().map(|stage| stage.count).sum())
    }

    /// The payload to send now; none while an answer is waited for, or at the end.
    pub fn poll_payload(&mut self) -> Option<&[u8]> {
        if self.outstanding.is_some() || self.halt.is_some() {
            return None;
        }
        let stage = *self.stages.get(self.stage)?;
        if self.results.len() == self.stage {
            let exchange = Exchange {
                remote: self.remote.clone(),
                frame_bytes: stage.frame_bytes as u64,
                payload_bytes: stage.payload_bytes as u64,
                ..Exchange::default()
            };
            let samples = usize::try_from(stage.count.min(1 << 20)).unwrap_or(0);
            self.results.push((exchange, Vec::with_capacity(samples)));
        }
        self.payload.resize(stage.payload_bytes, 0);
        fill(self.number, &mut self.payload);
        Some(&self.payload)
    }

    /// The payload was handed to the stack at this moment.
    pub fn on_sent(&mut self, at: Instant) {
        self.outstanding = Some(at);
        self.begun += 1;
        if !self.is_greeting()
            && let Some((exchange, _)) = self.results.last_mut()
        {
            exchange.sent += 1;
        }
    }

    /// How long one answer is waited for.
    pub fn timeout(&self) -> Span {
        self.patience.timeout
    }

    /// Something came back at this moment, which may be after its time.
    pub fn handle_answer(&mut self, at: Instant, payload: &[u8]) {
        self.handle_deadline(at);
        let greeting = self.is_greeting();
        let is_current = payload == self.payload && self.outstanding.is_some();
        let number = number_of(payload);
        let Some((exchange, samples)) = self.results.last_mut() else { return };
        if !is_current {
            match number {
                // A pattern of an earlier number: late if it was given up, else it came before.
                Some(number) if number < self.number => {
                    if is_whole(number, payload) {
                        exchange.late += 1;
                    } else {
                        exchange.corrupt += 1;
                    }
                }
                _ => exchange.corrupt += 1,
            }
            return;
        }
        let Some(sent) = self.outstanding.take() else { return };
        let rtt = at.saturating_since(sent).as_ns_f64();
        if greeting {
            exchange.first_ns = Some(rtt);
        } else {
            exchange.answered += 1;
            samples.push(rtt);
        }
        self.heard = true;
        self.silent = 0;
        self.advance();
    }

    /// When the answer that is waited for will be too late.
    pub fn deadline(&self) -> Option<Instant> {
        self.outstanding.map(|sent| sent + self.patience.timeout)
    }

    /// Gives up the answer that is waited for, if it is too late.
    pub fn handle_deadline(&mut self, now: Instant) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        self.outstanding = None;
        if !self.is_greeting()
            && let Some((exchange, _)) = self.results.last_mut()
        {
            exchange.lost += 1;
        }
        self.advance();
        self.silent += 1;
        if self.silent >= self.patience.silent_max {
            self.halt = Some(Halt::Silent(self.silent));
        }
    }

    /// An ICMP error about what was sent: it ends the course.
    pub fn on_refused(&mut self, why: String) {
        if let Some((exchange, _)) = self.results.last_mut() {
            exchange.errors += 1;
        }
        self.halt = Some(Halt::Refused(why));
    }

    /// What came of every stage that was begun, and what a reader must know.
    pub fn into_results(mut self) -> (Vec<Exchange>, Vec<String>) {
        let mut flags = Vec::new();
        if self.outstanding.take().is_some()
            && !self.is_greeting()
            && let Some((exchange, _)) = self.results.last_mut()
        {
            // Still under way when it was stopped: neither answered nor lost.
            exchange.sent -= 1;
        }
        let exchanges = self.results.into_iter().map(|(mut exchange, samples)| {
            let (summary, missing) = single::summary(&samples);
            exchange.rtt = summary;
            let frame = exchange.frame_bytes;
            flags.extend(missing.iter().map(|flag| format!("{frame} B: {flag}")));
            exchange
        });
        let exchanges = exchanges.collect();
        (exchanges, flags)
    }

    /// The packet under way is answered or given up.
    fn advance(&mut self) {
        self.number += 1;
        self.step += 1;
        if self.stages.get(self.stage).is_some_and(|stage| self.step > stage.count) {
            self.stage += 1;
            self.step = 0;
        }
    }

    /// Whether the packet under way is the first of its stage, which does not count.
    fn is_greeting(&self) -> bool {
        self.step == 0
    }
}

/// Writes a number and the pattern that goes with it.
fn fill(number: u64, payload: &mut [u8]) {
    let Some((head, rest)) = payload.split_first_chunk_mut() else { return };
    *head = number.to_be_bytes();
    let mut byte = head[7].wrapping_mul(31);
    for place in rest {
        *place = byte;
        byte = byte.wrapping_add(1);
    }
}

fn number_of(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|head| u64::from_be_bytes(*head))
}

/// Whether a payload is the pattern of its number.
fn is_whole(number: u64, payload: &[u8]) -> bool {
    let mut expected = vec![0; payload.len()];
    fill(number, &mut expected);
    payload == expected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ORIGIN + Span::from_us(us)
    }

    fn course(count: u64) -> Course {
        let stage = |frame_bytes, payload_bytes| Stage { frame_bytes, payload_bytes, count };
        let patience = Patience { timeout: Span::from_us(100), silent_max: 3 };
        Course::new("peer".to_owned(), vec![stage(60, 18), stage(1_514, 1_472)], patience)
    }

    #[test]
    fn every_stage_is_run_after_one_greeting_each() {
        let mut course = course(10);
        let mut now = 0;
        let mut sizes = Vec::new();
        while let Some(payload) = course.poll_payload().map(<[u8]>::to_vec) {
            sizes.push(payload.len());
            course.on_sent(at(now));
            assert!(course.poll_payload().is_none(), "one at a time");
            course.handle_answer(at(now + 5), &payload);
            now += 10;
        }
        assert!(course.is_over() && course.halt().is_none());
        assert_eq!(sizes, [vec![18; 11], vec![1_472; 11]].concat());
        let (exchanges, _) = course.into_results();
        for exchange in exchanges {
            assert_eq!((exchange.sent, exchange.answered, exchange.lost), (10, 10, 0));
            assert_eq!(exchange.rtt.median, Some(5_000.0));
            assert_eq!(exchange.first_ns, Some(5_000.0));
        }
    }

    #[test]
    fn what_is_late_foreign_or_broken_is_counted_and_not_timed() {
        let mut course = course(3);
        let first = course.poll_payload().unwrap().to_vec();
        course.on_sent(at(0));
        course.handle_deadline(at(99));
        assert!(course.deadline().is_some(), "it still has time");
        course.handle_deadline(at(100));
        let second = course.poll_payload().unwrap().to_vec();
        course.on_sent(at(200));
        course.handle_answer(at(201), &first);
        let mut broken = second.clone();
        broken[12] ^= 1;
        course.handle_answer(at(202), &broken);
        course.handle_answer(at(203), b"?");
        course.handle_answer(at(204), &second);
        course.handle_answer(at(205), &second);
        let (exchanges, _) = course.into_results();
        let exchange = &exchanges[0];
        assert_eq!((exchange.late, exchange.corrupt, exchange.answered), (2, 2, 1));
        assert_eq!(exchange.rtt.n, 1);
    }

    #[test]
    fn an_answer_after_its_time_is_late_whoever_looks_at_it_first() {
        let mut course = course(3);
        for _ in 0..2 {
            let payload = course.poll_payload().unwrap().to_vec();
            course.on_sent(at(0));
            course.handle_answer(at(100), &payload);
        }
        let third = course.poll_payload().unwrap().to_vec();
        course.on_sent(at(0));
        course.handle_answer(at(99), &third);
        let (exchanges, _) = course.into_results();
        let exchange = &exchanges[0];
        assert_eq!((exchange.late, exchange.lost, exchange.answered), (2, 1, 1));
    }

    #[test]
    fn a_course_that_is_stopped_knows_whether_anything_was_answered() {
        let mut course = course(3);
        assert_eq!(course.unanswered(), None, "nobody was asked");
        let greeting = course.poll_payload().unwrap().to_vec();
        course.on_sent(at(0));
        assert_eq!(course.unanswered(), Some(1));
        course.handle_answer(at(1), &greeting);
        assert_eq!(course.unanswered(), None);
        assert!(!course.is_over());
    }

    #[test]
    fn a_silent_peer_and_a_refusal_end_it() {
        let mut silent = course(1_000);
        let mut now = 0;
        while silent.poll_payload().is_some() {
            silent.on_sent(at(now));
            now += 100;
            silent.handle_deadline(at(now));
        }
        assert_eq!(silent.halt(), Some(&Halt::Silent(3)));
        assert_eq!(silent.unanswered(), Some(3));
        let mut refused = course(1);
        refused.poll_payload().unwrap();
        refused.on_sent(at(0));
        refused.on_refused("nobody listens".to_owned());
        assert!(refused.is_over() && refused.poll_payload().is_none());
    }
}
