//! Which resolver a question about a name is put to: the first that resolv.conf(5) names, and the next
//! one where the same question comes again because it has had no answer.
//!
//! So a resolver that alone knows some names is asked for them, and one that is silent costs a program
//! no more than outside.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_base::time::Span;

/// How many a resolver of C's library asks (resolv.conf(5), MAXNS).
const RESOLVERS_MAX: usize = 3;
/// A question that comes again sooner is another program's, or goes two ways at once: programs wait
/// for an answer for a second at least.
const RETRY_MIN: Span = Span::from_ms(500);
/// How long a question without an answer may be asked again: after that it is a new one.
const RETRY_MAX: Span = Span::from_ms(15_000);
/// Questions without answers that are remembered at most.
const PENDING_QUERIES_MAX: usize = 256;
/// Bytes of a message's header (RFC 1035 §4.1.1).
const HEADER: usize = 12;
/// Bytes of a name at most (RFC 1035 §2.3.4).
const NAME_MAX: usize = 255;
/// Longest label of a name; what is more is a pointer, which no question has.
const LABEL_MAX: usize = 63;
/// Bytes behind a question's name: its type and its class.
const TYPE_AND_CLASS: usize = 4;

/// Who answers questions about names outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolverConfig {
    /// In their order; not empty.
    pub addresses: Vec<IpAddr>,
    /// Whether each question begins with the next one.
    pub rotates: bool,
}

impl ResolverConfig {
    /// Those that a resolv.conf(5) names; this machine's own where it names none.
    pub fn of(conf: &str) -> Self {
        let lines = || conf.lines().map(str::trim);
        let named = lines()
            .filter_map(|line| line.strip_prefix("nameserver"))
            // An address with a zone is of one interface, and cannot be given on.
            .filter_map(|rest| rest.trim().parse().ok());
        let mut addresses: Vec<IpAddr> = named.take(RESOLVERS_MAX).collect();
        if addresses.is_empty() {
            addresses.push(Ipv4Addr::LOCALHOST.into());
        }
        let mut options = lines().filter_map(|line| line.strip_prefix("options"));
        let rotates = options.any(|rest| rest.split_whitespace().any(|word| word == "rotate"));
        Self { addresses, rotates }
    }
}

/// A question without an answer.
#[derive(Clone, Copy, Debug)]
struct PendingDnsQuery {
    resolver: usize,
    at_ns: u64,
    /// It has had an answer, which was none.
    refused: bool,
}

/// The questions that were asked, and of whom.
#[derive(Debug)]
pub(super) struct DnsQueries {
    count: usize,
    rotates: bool,
    turn: usize,
    /// Who answered last.
    answering: usize,
    asked: BTreeMap<Vec<u8>, PendingDnsQuery>,
}

impl DnsQueries {
    pub fn new(resolvers: &ResolverConfig) -> Self {
        let (count, rotates) = (resolvers.addresses.len().max(1), resolvers.rotates);
        Self { count, rotates, turn: 0, answering: 0, asked: BTreeMap::new() }
    }

    /// Which resolver was the last that answered: a long answer is asked, over TCP, of the one that has
    /// said that it is too long.
    pub const fn answering(&self) -> usize {
        self.answering
    }

    /// The resolver of a question that comes now; of a new one where `present` says that others of its
    /// flow are under way with that one, it.
    pub fn choose_resolver(
        &mut self,
        message: &[u8],
        present: Option<usize>,
        now_ns: u64,
    ) -> usize {
        let key = query_key(message);
        let before = key.as_ref().and_then(|key| self.asked.get(key)).copied();
        let age =
            before.map_or(Span::ZERO, |asked| Span::from_ns(now_ns.saturating_sub(asked.at_ns)));
        let resolver = match before {
            Some(asked) if age <= RETRY_MAX && (asked.refused || age >= RETRY_MIN) => {
                (asked.resolver + 1) % self.count
            }
            Some(asked) if age < RETRY_MIN => return asked.resolver,
            _ => present.unwrap_or_else(|| self.first()),
        };
        if let Some(key) = key {
            self.make_room(now_ns);
            self.asked.insert(key, PendingDnsQuery { resolver, at_ns: now_ns, refused: false });
        }
        resolver
    }

    /// A resolver has answered. One that failed or refused has not: another may do better.
    pub fn on_answer(&mut self, message: &[u8], resolver: usize) {
        const FAILURE: u8 = 2;
        const NOT_IMPLEMENTED: u8 = 4;
        const REFUSED: u8 = 5;
        let Some(key) = query_key(message) else { return };
        let code = message.get(3).map_or(0, |flags| flags & 0x0f);
        if !matches!(code, FAILURE | NOT_IMPLEMENTED | REFUSED) {
            self.answering = resolver;
            self.asked.remove(&key);
        } else if let Some(asked) = self.asked.get_mut(&key)
            && asked.resolver == resolver
        {
            asked.refused = true;
        }
    }

    /// The one that a question begins with.
    fn first(&mut self) -> usize {
        let first = self.turn % self.count;
        self.turn += usize::from(self.rotates);
        first
    }

    fn make_room(&mut self, now_ns: u64) {
        if self.asked.len() < PENDING_QUERIES_MAX {
            return;
        }
        self.asked.retain(|_, asked| now_ns.saturating_sub(asked.at_ns) <= RETRY_MAX.as_ns());
        if self.asked.len() >= PENDING_QUERIES_MAX {
            let oldest = self.asked.iter().min_by_key(|(_, asked)| asked.at_ns);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.asked.remove(&key);
            }
        }
    }
}

/// What a message asks: name, type and class, in one spelling; none of a message with other than one
/// question. Its number is left out: whoever asks again may take another.
fn query_key(message: &[u8]) -> Option<Vec<u8>> {
    if message.get(4..6)? != [0, 1] {
        return None;
    }
    let rest = message.get(HEADER..)?;
    let mut end = 0;
    loop {
        let label = usize::from(*rest.get(end)?);
        end += 1 + label;
        if label > LABEL_MAX || end > NAME_MAX {
            return None;
        }
        if label == 0 {
            break;
        }
    }
    let mut key = rest.get(..end + TYPE_AND_CLASS)?.to_vec();
    key[..end].make_ascii_lowercase();
    Some(key)
}

/// The port of the Domain Name System.
pub(super) const DNS_PORT: u16 = 53;

/// What addresses inside mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressMap {
    /// The addresses of the far side: they stand for this machine itself.
    pub far: Vec<IpAddr>,
    /// Who answers questions about names that are put to the far side.
    pub resolvers: ResolverConfig,
}

impl AddressMap {
    /// Whether it is an address of the far side.
    pub fn is_far(&self, address: IpAddr) -> bool {
        self.far.contains(&address)
    }

    /// Whether what is sent there are questions for resolvers.
    pub(super) fn is_resolver(&self, inside: SocketAddr) -> bool {
        inside.port() == DNS_PORT && self.is_far(inside.ip())
    }

    /// Where what is sent to `inside` goes: the far side's own address is this machine's loopback, and
    /// names are asked of the resolver of this number.
    pub fn outside(&self, inside: SocketAddr, resolver: usize) -> SocketAddr {
        if !self.is_far(inside.ip()) {
            return inside;
        }
        let resolver = self.resolvers.addresses.get(resolver).filter(|_| self.is_resolver(inside));
        if let Some(&resolver) = resolver {
            return (resolver, DNS_PORT).into();
        }
        let loopback: IpAddr = match inside {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        (loopback, inside.port()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: usize = 0;
    const SECOND: usize = 1;
    const THIRD: usize = 2;

    fn questions(conf: &str) -> DnsQueries {
        DnsQueries::new(&ResolverConfig::of(conf))
    }

    fn three() -> DnsQueries {
        questions("nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n")
    }

    /// A message with this number and code about a name of one label.
    fn message(number: u8, code: u8, name: &str) -> Vec<u8> {
        let mut message = vec![0, number, 1, code, 0, 1, 0, 0, 0, 0, 0, 0];
        message.push(u8::try_from(name.len()).unwrap());
        message.extend(name.as_bytes());
        message.extend([0, 0, 1, 0, 1]);
        message
    }

    fn ms(ms: u64) -> u64 {
        Span::from_ms(ms).as_ns()
    }

    #[test]
    fn resolvers_are_three_at_most_in_their_order_and_take_turns_only_when_told_to() {
        let resolvers = ResolverConfig::of(
            "search example\nnameserver 192.0.2.53\n nameserver fe80::1%eth0\nnameserver ::1\n",
        );
        let addresses = ["192.0.2.53", "::1"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!((resolvers.addresses.as_slice(), resolvers.rotates), (&addresses[..], false));
        assert_eq!(ResolverConfig::of("# nothing\n").addresses, [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        let many = "nameserver 192.0.2.1\n".repeat(9) + "options edns0 rotate\n";
        let many = ResolverConfig::of(&many);
        assert_eq!((many.addresses.len(), many.rotates), (RESOLVERS_MAX, true));
    }

    #[test]
    fn every_new_question_is_put_to_the_first_resolver() {
        let mut questions = three();
        for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
            assert_eq!(questions.choose_resolver(&message(number, 0, name), None, 0), FIRST);
        }
        // Answered, and asked once more later.
        questions.on_answer(&message(1, 0, "a"), FIRST);
        assert_eq!(questions.choose_resolver(&message(9, 0, "a"), None, ms(5_000)), FIRST);
    }

    #[test]
    fn a_question_that_had_no_answer_is_put_to_the_next_whatever_its_number_and_spelling() {
        let mut questions = three();
        assert_eq!(questions.choose_resolver(&message(1, 0, "name"), None, 0), FIRST);
        assert_eq!(
            questions.choose_resolver(&message(1, 0, "name"), None, ms(499)),
            FIRST,
            "at once"
        );
        assert_eq!(questions.choose_resolver(&message(2, 0, "NAME"), None, ms(1_000)), SECOND);
        assert_eq!(questions.choose_resolver(&message(3, 0, "name"), None, ms(2_000)), THIRD);
        assert_eq!(questions.choose_resolver(&message(3, 0, "other"), None, ms(2_000)), FIRST);
        assert_eq!(questions.choose_resolver(&message(3, 0, "name"), None, ms(3_000)), FIRST);
        let late = ms(3_000) + RETRY_MAX.as_ns();
        assert_eq!(questions.choose_resolver(&message(3, 0, "name"), None, late), SECOND);
        let forgotten = late + RETRY_MAX.as_ns() + 1;
        assert_eq!(questions.choose_resolver(&message(3, 0, "name"), None, forgotten), FIRST);
    }

    #[test]
    fn a_resolver_that_refuses_has_not_answered_and_one_that_knows_no_such_name_has() {
        const NO_SUCH_NAME: u8 = 3;
        let mut questions = three();
        questions.choose_resolver(&message(1, 0, "name"), None, 0);
        questions.on_answer(&message(1, 5, "name"), FIRST);
        assert_eq!(questions.choose_resolver(&message(1, 0, "name"), None, 1), SECOND);
        questions.on_answer(&message(1, NO_SUCH_NAME, "name"), SECOND);
        assert_eq!(questions.answering(), SECOND);
        assert_eq!(questions.choose_resolver(&message(1, 0, "name"), None, 2), FIRST);
    }

    #[test]
    fn with_rotation_each_new_question_begins_with_the_next_resolver() {
        let mut questions =
            questions("options rotate\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n");
        let mut ask = |name: &str| questions.choose_resolver(&message(1, 0, name), None, 0);
        assert_eq!(["a", "b", "c"].map(&mut ask), [FIRST, SECOND, FIRST]);
    }

    #[test]
    fn what_is_no_question_is_put_to_the_first_and_nothing_is_remembered_for_ever() {
        let mut questions = three();
        let long = [&message(1, 0, "a")[..HEADER], &[63; 300]].concat();
        let pointer = [&message(1, 0, "a")[..HEADER], &[0xc0, 0x0c, 0, 1, 0, 1]].concat();
        let several = [&[0, 1, 1, 0, 0, 2][..], &message(1, 0, "a")[6..]].concat();
        for message in [&[][..], &[0; 6], &long, &pointer, &several] {
            assert_eq!(query_key(message), None);
            assert_eq!(questions.choose_resolver(message, None, 0), FIRST);
            assert_eq!(questions.choose_resolver(message, Some(SECOND), ms(1_000)), SECOND);
        }
        for number in 0..2 * u64::try_from(PENDING_QUERIES_MAX).unwrap() {
            questions.choose_resolver(&message(1, 0, &number.to_string()), None, number);
            assert!(questions.asked.len() <= PENDING_QUERIES_MAX);
        }
    }

    #[test]
    fn the_far_side_is_this_machine_its_names_are_the_resolvers_and_all_else_is_itself() {
        let targets = AddressMap {
            far: vec!["10.77.0.2".parse().unwrap(), "fd77::2".parse().unwrap()],
            resolvers: ResolverConfig::of("nameserver 192.0.2.53\nnameserver 192.0.2.54\n"),
        };
        let outside = |inside: &str| targets.outside(inside.parse().unwrap(), 0).to_string();
        assert_eq!(outside("10.77.0.2:80"), "127.0.0.1:80");
        assert_eq!(outside("[fd77::2]:80"), "[::1]:80");
        assert_eq!(outside("10.77.0.2:53"), "192.0.2.53:53");
        assert_eq!(outside("[fd77::2]:53"), "192.0.2.53:53");
        assert_eq!(outside("198.51.100.1:53"), "198.51.100.1:53");
        let second = targets.outside("10.77.0.2:53".parse().unwrap(), 1);
        assert_eq!(second.to_string(), "192.0.2.54:53");
    }
}
