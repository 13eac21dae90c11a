//! What may follow a packet: types, lengths and values, and how each is answered (RFC 8972 §4).
//!
//! An answer carries the question's TLVs back, flagged: one that is not known here, one whose length is wrong, with
//! which reading ends, or all where their seal is wrong or cannot be looked at. Extra padding is known, and so is
//! the question how this side's clock is set and read. Left out: all others, which are flagged as not recognised,
//! and a key for the TLVs of the open mode.

use super::packet::{SEAL_BYTES, StampKey};

/// Not recognised by the reflector; set by a sender.
pub const UNRECOGNISED: u8 = 0x80;
/// Longer than the packet.
pub const MALFORMED: u8 = 0x40;
/// Not sealed as it should be.
pub const INTEGRITY: u8 = 0x20;

/// Bytes before the value: flags, type, length.
pub const HEADER: usize = 4;

/// Extra padding (§4.1).
pub const PADDING: u8 = 1;
/// How times are come by (§4.3).
pub const TIMESTAMP_INFORMATION: u8 = 3;
/// The seal of the TLVs before it (§4.8).
pub const HMAC: u8 = 8;

/// Synchronised by NTP, of §4.3's sources.
const SOURCE_NTP: u8 = 1;
/// Not synchronised: running by itself.
const SOURCE_FREE: u8 = 5;
/// Stamped by software on the host.
const METHOD_SOFTWARE: u8 = 2;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampTlv<'a> {
    /// [`UNRECOGNISED`] and the others.
    pub flags: u8,
    /// What it is.
    pub kind: u8,
    /// Its value, cut off where it is longer than the packet.
    pub value: &'a [u8],
    /// Where its flags are, from the first TLV on.
    pub at: usize,
    /// Whether it says that it is longer than the packet.
    pub is_cut_off: bool,
}

/// Goes through TLVs, up to the first that is cut off, or to zeros, which are padding of older senders.
pub fn iterate(bytes: &[u8]) -> impl Iterator<Item = StampTlv<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        let (header, rest) = rest.split_at_checked(HEADER)?;
        let (flags, kind) = (header[0], header[1]);
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header == [0; HEADER] {
            return None;
        }
        let is_cut_off = len > rest.len();
        let tlv = StampTlv { flags, kind, value: &rest[..len.min(rest.len())], at, is_cut_off };
        at = if is_cut_off { bytes.len() } else { at + HEADER + len };
        Some(tlv)
    })
}

/// Appends one as a sender does.
///
/// # Panics
/// Where the value is longer than 65,535 bytes, which no datagram holds.
pub fn append(packet: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let len = u16::try_from(value.len()).expect("a value fits a datagram");
    packet.extend([UNRECOGNISED, kind]);
    packet.extend(len.to_be_bytes());
    packet.extend(value);
}

/// Appends the seal of the TLVs that begin at `start` of a packet.
pub fn append_hmac(packet: &mut Vec<u8>, start: usize, key: &StampKey) {
    let seal = key.authenticate(&[&packet[..4], &packet[start..]]);
    append(packet, HMAC, &seal);
}

/// What an answer's flags say about the TLVs that were asked with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlvFlagCounts {
    /// Not recognised there.
    pub unrecognised: u64,
    /// Of a wrong length there; nothing after it was read.
    pub malformed: u64,
    /// Not sealed as they should be, so that none counts.
    pub unsealed: u64,
}

impl TlvFlagCounts {
    /// Reads an answer's TLVs as far as their flags allow: none where a seal was wrong, and nothing after one of a
    /// wrong length.
    pub fn of(tlvs: &[u8]) -> Self {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let has = |flag: u8| move |tlv: &StampTlv<'_>| tlv.flags & flag != 0;
        let unsealed = iterate(tlvs).filter(has(INTEGRITY)).count();
        if unsealed > 0 {
            return Self { unsealed: count(unsealed), ..Self::default() };
        }
        let is_malformed = |tlv: &StampTlv<'_>| tlv.flags & MALFORMED != 0 || tlv.is_cut_off;
        let read = iterate(tlvs).take_while(|tlv| !is_malformed(tlv));
        Self {
            unrecognised: count(read.filter(has(UNRECOGNISED)).count()),
            malformed: u64::from(iterate(tlvs).any(|tlv| is_malformed(&tlv))),
            unsealed: 0,
        }
    }
}

/// Makes a question's TLVs, copied behind an answer, the answer's own: `asked` are the question's first four bytes,
/// and `answered` the answer's, which the seals cover. The length stays.
pub fn reflect(
    tlvs: &mut [u8],
    key: Option<&StampKey>,
    asked: [u8; 4],
    answered: [u8; 4],
    synchronised: bool,
) {
    let found: Vec<(usize, u8, usize, bool)> =
        iterate(tlvs).map(|tlv| (tlv.at, tlv.kind, tlv.value.len(), tlv.is_cut_off)).collect();
    let is_intact = match key {
        Some(key) => is_authentic(tlvs, &found, key, asked),
        // A seal that cannot be looked at is no better than a wrong one.
        None => found.iter().all(|&(_, kind, ..)| kind != HMAC),
    };
    if !is_intact {
        for (at, ..) in found {
            tlvs[at] = INTEGRITY;
        }
        return;
    }
    for &(at, kind, len, is_cut_off) in &found {
        let value = at + HEADER;
        tlvs[at] = match (kind, key) {
            _ if is_cut_off => MALFORMED,
            (PADDING, _) => 0,
            (HMAC, Some(key)) if len == SEAL_BYTES => {
                let seal = key.authenticate(&[&answered, &tlvs[..at]]);
                tlvs[value..value + SEAL_BYTES].copy_from_slice(&seal);
                0
            }
            (TIMESTAMP_INFORMATION, _) if len == 4 => {
                let source = if synchronised { SOURCE_NTP } else { SOURCE_FREE };
                let said = [source, METHOD_SOFTWARE, source, METHOD_SOFTWARE];
                tlvs[value..value + 4].copy_from_slice(&said);
                0
            }
            (HMAC | TIMESTAMP_INFORMATION, _) => MALFORMED,
            _ => UNRECOGNISED,
        };
        if tlvs[at] == MALFORMED {
            // Where one ends is not known, nor what the rest is: it goes back as it came.
            return;
        }
    }
}

/// Whether TLVs under a key are sealed as they must be: by a seal after all but padding; padding alone needs none.
fn is_authentic(
    tlvs: &[u8],
    found: &[(usize, u8, usize, bool)],
    key: &StampKey,
    first: [u8; 4],
) -> bool {
    let Some(index) = found.iter().position(|&(_, kind, ..)| kind == HMAC) else {
        return found.is_empty() || (found.len() == 1 && found[0].1 == PADDING);
    };
    let (at, _, len, is_cut_off) = found[index];
    let last = found[index + 1..].iter().all(|&(_, kind, ..)| kind == PADDING);
    let value = &tlvs[at + HEADER..at + HEADER + len];
    last && !is_cut_off && key.verify(&[&first, &tlvs[..at]], value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flags(tlvs: &[u8]) -> Vec<u8> {
        iterate(tlvs).map(|tlv| tlv.flags).collect()
    }

    #[test]
    fn what_is_known_is_answered_and_what_is_not_is_flagged() {
        let mut tlvs = Vec::new();
        append(&mut tlvs, PADDING, &[7; 5]);
        append(&mut tlvs, TIMESTAMP_INFORMATION, &[0; 4]);
        append(&mut tlvs, 200, b"?");
        let before = tlvs.len();
        reflect(&mut tlvs, None, [0; 4], [0; 4], true);
        assert_eq!((flags(&tlvs), tlvs.len()), (vec![0, 0, UNRECOGNISED], before));
        let second = iterate(&tlvs).nth(1).unwrap();
        assert_eq!(second.value, [SOURCE_NTP, METHOD_SOFTWARE, SOURCE_NTP, METHOD_SOFTWARE]);
    }

    #[test]
    fn one_that_is_longer_than_the_packet_is_malformed_and_the_last() {
        let mut tlvs = vec![UNRECOGNISED, PADDING, 0, 9, 1, 2, 3];
        reflect(&mut tlvs, None, [0; 4], [0; 4], false);
        assert_eq!(tlvs, [MALFORMED, PADDING, 0, 9, 1, 2, 3]);
    }

    #[test]
    fn nothing_is_read_after_one_of_a_wrong_length() {
        let mut tlvs = Vec::new();
        append(&mut tlvs, 200, b"?");
        append(&mut tlvs, TIMESTAMP_INFORMATION, &[0; 3]);
        append(&mut tlvs, TIMESTAMP_INFORMATION, &[0; 4]);
        let came = tlvs.clone();
        reflect(&mut tlvs, None, [0; 4], [0; 4], true);
        assert_eq!(flags(&tlvs), [UNRECOGNISED, MALFORMED, UNRECOGNISED]);
        let rest = iterate(&came).nth(2).unwrap().at;
        assert_eq!(tlvs[rest..], came[rest..], "the rest goes back as it came");
        let told = TlvFlagCounts { unrecognised: 1, malformed: 1, unsealed: 0 };
        assert_eq!(TlvFlagCounts::of(&tlvs), told);
    }

    #[test]
    fn a_seal_that_cannot_be_looked_at_is_a_wrong_one() {
        let mut packet = vec![0; 4];
        append(&mut packet, TIMESTAMP_INFORMATION, &[0; 4]);
        append_hmac(&mut packet, 4, &StampKey::new(b"k"));
        let mut tlvs = packet[4..].to_vec();
        reflect(&mut tlvs, None, [0; 4], [0; 4], true);
        assert_eq!(flags(&tlvs), [INTEGRITY; 2]);
        assert_eq!(iterate(&tlvs).next().unwrap().value, [0; 4], "nothing of it is used");
        let told = TlvFlagCounts { unsealed: 2, ..TlvFlagCounts::default() };
        assert_eq!(TlvFlagCounts::of(&tlvs), told, "and nothing of the answer's is");
    }

    #[test]
    fn zeros_are_padding_of_senders_that_know_no_tlvs() {
        let mut zeros = [0; 100];
        reflect(&mut zeros, None, [0; 4], [0; 4], true);
        assert_eq!(zeros, [0; 100]);
    }

    #[test]
    fn a_seal_covers_number_and_tlvs_and_a_wrong_one_flags_them_all() {
        let key = StampKey::new(b"k");
        let asked = [0, 0, 0, 9];
        let mut packet = asked.to_vec();
        append(&mut packet, TIMESTAMP_INFORMATION, &[0; 4]);
        append_hmac(&mut packet, 4, &key);
        append(&mut packet, PADDING, &[0; 3]);
        let mut right = packet[4..].to_vec();
        reflect(&mut right, Some(&key), asked, [0, 0, 0, 2], true);
        assert_eq!(flags(&right), [0, 0, 0]);
        let seal = iterate(&right).nth(1).unwrap();
        assert!(key.verify(&[&[0, 0, 0, 2], &right[..seal.at]], seal.value));
        let mut wrong = packet[4..].to_vec();
        reflect(&mut wrong, Some(&key), [0, 0, 0, 8], [0, 0, 0, 2], true);
        assert_eq!(flags(&wrong), [INTEGRITY; 3]);
        let mut without = Vec::new();
        append(&mut without, TIMESTAMP_INFORMATION, &[0; 4]);
        reflect(&mut without, Some(&key), asked, asked, true);
        assert_eq!(flags(&without), [INTEGRITY]);
    }

    proptest! {
        #[test]
        fn no_tlvs_break_the_answer_or_change_more_than_is_theirs(
            bytes in prop::collection::vec(any::<u8>(), 0..200), sealed: bool, synchronised: bool,
        ) {
            let key = StampKey::new(b"k");
            let mut answered = bytes.clone();
            reflect(&mut answered, sealed.then_some(&key), [1; 4], [2; 4], synchronised);
            prop_assert_eq!(answered.len(), bytes.len());
            let kinds = |bytes: &[u8]| -> Vec<(usize, u8)> {
                iterate(bytes).map(|tlv| (tlv.at, tlv.kind)).collect()
            };
            // A flag may make the first byte zero, and so the rest look like padding.
            let (before, after) = (kinds(&bytes), kinds(&answered));
            prop_assert!(before.starts_with(&after), "{before:?} {after:?}");
        }
    }
}
