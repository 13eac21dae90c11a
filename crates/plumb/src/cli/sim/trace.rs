//! The digest of a simulation's trace.

use std::cell::RefCell;
use std::fmt;
use std::fmt::Write as _;
use std::rc::Rc;

use plumb_base::time::Instant;
use plumb_sim::simulation::{PacketObserver, Simulation};
use ring::digest::{Context, SHA256};

/// SHA-256 over moment, link, length and bytes of every packet that arrives.
#[derive(Clone)]
pub struct TraceDigest(Rc<RefCell<Context>>);

impl TraceDigest {
    /// Begins with what happens next.
    pub fn attach(simulation: &mut Simulation) -> Self {
        let digest = Self(Rc::new(RefCell::new(Context::new(&SHA256))));
        simulation.observe(Box::new(digest.clone()));
        digest
    }

    /// The digest in hexadecimal digits.
    pub fn finish(self) -> String {
        hexadecimal(self.0.borrow().clone().finish().as_ref())
    }
}

impl PacketObserver for TraceDigest {
    fn on_arrival(&mut self, at: Instant, link: u32, bytes: &[u8]) {
        let mut context = self.0.borrow_mut();
        context.update(&at.since_origin().as_ps().to_be_bytes());
        context.update(&link.to_be_bytes());
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    }
}

impl fmt::Debug for TraceDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceDigest")
    }
}

/// Bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every text");
        text
    })
}
