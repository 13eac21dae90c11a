//! Emulated links: what one did, `plumb.link/1`; those that run, `plumb.links/1`; one measured from outside,
//! `plumb.link-check/1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const LINK_SCHEMA: &str = "plumb.link/1";

/// One link, as it was asked for and as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkDocument {
    /// Always `plumb.link/1`.
    pub schema: String,
    /// The name of the link: that of a lab, or the number of the process.
    pub name: String,
    /// The command behind it; empty for a lab.
    pub command: Vec<String>,
    /// The hosts that it joins.
    pub hosts: Vec<String>,
    /// The link as text: what was asked for, by its latest change.
    pub link: String,
    /// How often it was changed while it ran.
    pub changes: u64,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// The command's exit code, 128 and the signal's number where one ended it; null while it runs.
    pub exit: Option<i32>,
    /// Processes that the command left running, which were ended.
    pub left: u64,
    /// Whether the link was what it says: nothing late beyond the tolerance, nothing lost that was not
    /// meant to be, no line of its schedule refused, no flow to the outside turned away for want of room, and every account in balance.
    pub faithful: bool,
    /// One entry a hop and direction.
    pub directions: Vec<LinkDirection>,
    /// How punctual the link's driver was.
    pub driver: LinkDriver,
    /// What the gateway to the network outside did; null without one.
    pub gateway: Option<LinkGateway>,
    /// Errors that routers between the hops sent to who sent a frame that could not go on.
    pub router_errors: u64,
    /// Errors that they did not send: by their limit of a thousand a second, or because nobody may be told.
    #[serde(default)]
    pub router_errors_withheld: u64,
    /// Packets that they cut into fragments.
    #[serde(default)]
    pub fragmented: u64,
    /// The fragments.
    #[serde(default)]
    pub fragments: u64,
    /// Frames lost inside the link because there was no memory for them: by no model.
    #[serde(default)]
    pub no_memory: u64,
    /// Laws of conservation that the accounts break: a bug of plumb, if ever there is any.
    pub violations: Vec<String>,
    /// What a reader must know.
    pub flags: Vec<String>,
}

/// One direction of one hop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkDirection {
    /// Which: `hop 1 up`, from the near side to the far one, or `hop 1 down`.
    pub name: String,
    /// What was asked for, as text.
    pub asked: String,
    /// Frames that entered.
    pub frames_in: u64,
    /// Their bytes as the rate counts them, overhead included.
    pub bytes_in: u64,
    /// Frames that left.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames that went no further, by reason; what is zero is left out.
    pub discarded: BTreeMap<String, u64>,
    /// Frames marked "congestion experienced".
    pub marked: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames sent later than others behind them.
    #[serde(default)]
    pub reordered: u64,
    /// Frames delivered with a bit changed.
    #[serde(default)]
    pub corrupted: u64,
    /// Frames delivered cut short.
    #[serde(default)]
    pub truncated: u64,
    /// Frames held while the wire was clogged.
    #[serde(default)]
    pub held: u64,
    /// Frames that wait in the queue now.
    pub waiting: u64,
    /// Frames on the wire now.
    pub in_flight: u64,
    /// Bits in a second that left, on average over the whole time.
    pub bits_per_second: f64,
    /// Share that was used of what the rate offered; null where it is not limited.
    pub utilisation: Option<f64>,
    /// Frames that waited on average, over time.
    #[serde(default)]
    pub queue_mean: f64,
    /// Frames that a frame found in the queue: the middle of them.
    pub queue_p50: u64,
    /// The same, of 99 in 100 at most.
    pub queue_p99: u64,
    /// The most.
    pub queue_max: u64,
    /// Microseconds that a frame waited: the middle of them.
    pub sojourn_us_p50: f64,
    /// The same, of 99 in 100 at most.
    pub sojourn_us_p99: f64,
    /// The longest.
    pub sojourn_us_max: f64,
    /// How many frames waited how many microseconds (within 0.8 %), ascending. What happened between two
    /// documents of a link that runs is the difference of their counts.
    #[serde(default)]
    pub sojourns_us: Vec<(f64, u64)>,
}

/// How punctual a link's driver was; times in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkDriver {
    /// How moments were waited for: `timer`, `hybrid` or `busy`.
    pub precision: String,
    /// How long before a moment it spun.
    pub margin_us: f64,
    /// By how much it woke too late when that was tried at its beginning: the middle of sixty sleeps.
    pub wake_us_p50: f64,
    /// The same, of 99 in 100 at most.
    pub wake_us_p99: f64,
    /// The nice value of its thread: −20 has the greatest weight, 0 that of any other program.
    pub nice: i32,
    /// Beyond which lateness a deadline counts as missed.
    pub tolerance_us: f64,
    /// Frames handed over.
    pub frames: u64,
    /// How late: the middle of them.
    pub late_us_p50: f64,
    /// The same, of 99 in 100 at most.
    pub late_us_p99: f64,
    /// The same, of 999 in 1,000 at most.
    pub late_us_p999: f64,
    /// The latest.
    pub late_us_max: f64,
    /// How many frames left how many microseconds after their moment (within 0.8 %), ascending.
    #[serde(default)]
    pub lateness_us: Vec<(f64, u64)>,
    /// Deadlines missed.
    pub missed: u64,
    /// By how much, the worst.
    pub missed_us_worst: f64,
    /// Times at which it was stopped, frozen or preempted.
    pub absences: u64,
    /// How long in all.
    pub absent_us: f64,
    /// The longest.
    pub absent_us_worst: f64,
    /// Frames that may have entered late because of that, or because the driver was ready to run and had no
    /// CPU for longer than the tolerance.
    pub entered_late: u64,
    /// By how much, at the most.
    pub entered_late_us_worst: f64,
    /// Frames that found the driver asleep, and entered late by what waking costs.
    pub found_asleep: u64,
    /// How long it was ready to run and had no CPU; null where the kernel does not say.
    pub waited_for_cpu_us: Option<f64>,
    /// How long the machine was suspended.
    pub suspended_us: f64,
    /// Frames that the devices lost before the link saw them.
    pub lost_before: u64,
    /// Frames that the devices did not take after it.
    pub lost_after: u64,
}

/// What a gateway did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkGateway {
    /// TCP connections carried.
    pub connections: u64,
    /// TCP connections that nobody outside took.
    pub refused: u64,
    /// Flows of UDP carried.
    pub datagram_flows: u64,
    /// Bytes of payload to the outside.
    pub bytes_up: u64,
    /// Bytes of payload from the outside.
    pub bytes_down: u64,
    /// Packets to the outside that are neither TCP nor UDP: not carried.
    pub not_carried: u64,
    /// First packets of flows that there was no room for.
    pub no_room: u64,
    /// Flows that made room for others, by why they could be spared: `over`, `idle` (a flow of UDP that
    /// was silent), `unanswered` (a connection under way); what is zero is left out.
    #[serde(default)]
    pub evicted: BTreeMap<String, u64>,
}

/// The name of this document's shape.
pub const LINKS_SCHEMA: &str = "plumb.links/1";

/// Every link and lab of a user, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinksDocument {
    /// Always `plumb.links/1`.
    pub schema: String,
    /// In the order of their names.
    pub links: Vec<LinkDocument>,
}

/// The name of this document's shape.
pub const LINK_CHECK_SCHEMA: &str = "plumb.link-check/1";

/// One link, as it was asked for and as it was found to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkCheckDocument {
    /// Always `plumb.link-check/1`.
    pub schema: String,
    /// The link as text.
    pub link: String,
    /// How long the check took, in seconds.
    pub seconds: f64,
    /// Whether no property is off.
    pub ok: bool,
    /// Whether the link's driver was in time and lost nothing: where not, what is off may be the
    /// machine's doing.
    pub faithful: bool,
    /// One entry a way and property.
    pub properties: Vec<LinkProperty>,
    /// How punctual the link's driver was.
    pub driver: LinkDriver,
}

/// One property of one way through a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkProperty {
    /// `up`, from the near side to the far one, or `down`.
    pub way: String,
    /// `delay`, `rate`, `jitter`, `loss` or `order`.
    pub property: String,
    /// `ok`, `off`, or `untested` where it cannot be told from outside or in this time, or where the link's driver counted
    /// lateness that explains as much: `late_frames` and `late_ns_worst` are among the numbers then.
    pub status: String,
    /// What was asked for.
    pub asked: String,
    /// What was got; empty where nothing can be told.
    pub got: String,
    /// By what that is judged, or why it is untested.
    pub note: String,
    /// The numbers behind it; each name ends in its unit, or is a count or a share.
    pub numbers: BTreeMap<String, f64>,
}
