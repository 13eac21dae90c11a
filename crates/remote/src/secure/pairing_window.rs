//! The time in which an agent takes a pairing: one token, once, for some minutes, few wrong tries.
//!
//! Pure: the moment is an argument. Left out: the connection ([`super::listener`]).

use plumb_base::time::{Instant, Span};

use super::admission::AdmissionRefusal;
use super::pairing_token::{PairingBinding, PairingProof, PairingSide, PairingToken};

/// How long a token may be used.
pub const OPEN_FOR: Span = Span::from_secs(600);
/// Wrong tries after which the token is worth nothing.
pub const FAILURES_MAX: u32 = 5;
/// How long nobody is heard after the first wrong try; twice as long after each further one.
pub const FAILURE_DELAY: Span = Span::from_secs(1);

/// One pairing that the agent is ready for.
#[derive(Clone, Debug)]
pub struct PairingWindow {
    token: PairingToken,
    closes: Instant,
    failures: u32,
    locked_until: Instant,
    state: PairingWindowState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairingWindowState {
    Open,
    Used,
    Locked,
}

impl PairingWindow {
    /// Opens now.
    pub fn open(token: PairingToken, now: Instant) -> Self {
        let (wrong, state) = (0, PairingWindowState::Open);
        Self { token, closes: now + OPEN_FOR, failures: wrong, locked_until: now, state }
    }

    /// Whether a right proof would still be taken.
    pub fn is_open(&self, now: Instant) -> bool {
        self.state == PairingWindowState::Open && now < self.closes
    }

    /// Takes a client's proof: the agent's own in return, and the token is used up.
    ///
    /// # Errors
    /// [`AdmissionRefusal`]; a wrong proof counts and makes everybody wait, one that comes too soon does not
    /// count.
    pub fn attempt(
        &mut self,
        now: Instant,
        proof: &PairingProof,
        binding: &PairingBinding,
    ) -> Result<PairingProof, AdmissionRefusal> {
        match self.state {
            PairingWindowState::Used => return Err(AdmissionRefusal::TokenUsed),
            PairingWindowState::Locked => return Err(AdmissionRefusal::TokenSpoilt),
            PairingWindowState::Open => {}
        }
        if now >= self.closes {
            return Err(AdmissionRefusal::TokenExpired);
        }
        if now < self.locked_until {
            let wait_ms = (self.locked_until - now).as_ns().div_ceil(1_000_000);
            return Err(AdmissionRefusal::TooSoon { wait_ms });
        }
        if self.token.verify(PairingSide::Client, binding, proof) {
            self.state = PairingWindowState::Used;
            return Ok(self.token.prove(PairingSide::Agent, binding));
        }
        self.locked_until = now + FAILURE_DELAY * (1 << self.failures);
        self.failures += 1;
        let tries_left = FAILURES_MAX - self.failures;
        if tries_left == 0 {
            self.state = PairingWindowState::Locked;
        }
        Err(AdmissionRefusal::WrongToken { tries_left })
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::Fingerprint;
    use super::*;

    const NOW: Instant = Instant::after_origin(Span::from_secs(100));

    fn binding(exporter: u8) -> PairingBinding {
        let [client, agent] = [Fingerprint::of(b"client"), Fingerprint::of(b"agent")];
        PairingBinding { client, agent, exporter: [exporter; 32] }
    }

    fn window() -> (PairingWindow, PairingToken) {
        let token = PairingToken::generate().unwrap();
        (PairingWindow::open(token.clone(), NOW), token)
    }

    #[test]
    fn a_token_pairs_once_and_the_agent_proves_itself_too() {
        let (mut window, token) = window();
        let proof = token.prove(PairingSide::Client, &binding(1));
        let answer = window.attempt(NOW, &proof, &binding(1)).unwrap();
        assert!(token.verify(PairingSide::Agent, &binding(1), &answer));
        assert!(!window.is_open(NOW));
        assert_eq!(window.attempt(NOW, &proof, &binding(1)), Err(AdmissionRefusal::TokenUsed));
    }

    #[test]
    fn a_proof_from_another_connection_is_a_wrong_try() {
        let (mut window, token) = window();
        let recorded = token.prove(PairingSide::Client, &binding(1));
        let refused = window.attempt(NOW, &recorded, &binding(2));
        assert_eq!(refused, Err(AdmissionRefusal::WrongToken { tries_left: FAILURES_MAX - 1 }));
    }

    #[test]
    fn wrong_tries_wait_ever_longer_and_spoil_the_token() {
        let (mut window, token) = window();
        let mut now = NOW;
        let mut waits = Vec::new();
        for left in (0..FAILURES_MAX).rev() {
            let refused = window.attempt(now, &[0; 32], &binding(1));
            assert_eq!(refused, Err(AdmissionRefusal::WrongToken { tries_left: left }));
            if let Err(AdmissionRefusal::TooSoon { wait_ms }) =
                window.attempt(now, &[0; 32], &binding(1))
            {
                waits.push(wait_ms);
                now += Span::from_ms(wait_ms);
            }
        }
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000]);
        let proof = token.prove(PairingSide::Client, &binding(1));
        assert_eq!(window.attempt(now, &proof, &binding(1)), Err(AdmissionRefusal::TokenSpoilt));
    }

    #[test]
    fn a_right_token_that_comes_too_soon_after_a_wrong_one_may_try_again() {
        let (mut window, token) = window();
        window.attempt(NOW, &[0; 32], &binding(1)).unwrap_err();
        let proof = token.prove(PairingSide::Client, &binding(1));
        let soon = window.attempt(NOW, &proof, &binding(1));
        assert_eq!(soon, Err(AdmissionRefusal::TooSoon { wait_ms: 1_000 }));
        assert!(window.attempt(NOW + FAILURE_DELAY, &proof, &binding(1)).is_ok());
    }

    #[test]
    fn a_token_expires() {
        let (mut window, token) = window();
        let proof = token.prove(PairingSide::Client, &binding(1));
        let late = NOW + OPEN_FOR;
        assert!(!window.is_open(late));
        assert_eq!(window.attempt(late, &proof, &binding(1)), Err(AdmissionRefusal::TokenExpired));
    }
}
