//! Tests of IPv4 headers.

use proptest::prelude::*;

use super::*;
use crate::ip::Ecn;

/// A UDP packet's header whose checksum, 0xb861, is worked out in many a textbook.
const KNOWN: [u8; 20] = [
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
    0xc0, 0xa8, 0x00, 0xc7,
];

fn known() -> Vec<u8> {
    let mut bytes = KNOWN.to_vec();
    bytes.resize(0x73, 0);
    bytes
}

fn options() -> impl Strategy<Value = OptionArea> {
    prop_oneof![
        Just(OptionArea::EMPTY),
        proptest::collection::vec(any::<u8>(), 0..=40).prop_map(|b| OptionArea::new(&b).unwrap()),
    ]
}

prop_compose! {
    fn header()(
        class in any::<u8>(), payload_len in 0..2_000_u16, identification in any::<u16>(),
        fragment in any::<u16>(), hop_limit in any::<u8>(), protocol in any::<u8>(),
        source in any::<Ipv4Addr>(), destination in any::<Ipv4Addr>(), options in options(),
    ) -> Ipv4Header {
        Ipv4Header {
            traffic_class: TrafficClass(class), payload_len, identification,
            fragment: FragmentField(fragment), hop_limit, protocol: IpProtocol(protocol),
            source, destination, options,
        }
    }
}

#[test]
fn a_known_header_is_read_and_its_checksum_is_right() {
    let bytes = known();
    let packet = Ipv4Packet::parse(&bytes).unwrap().verify().unwrap();
    assert_eq!(packet.source(), Ipv4Addr::new(192, 168, 0, 1));
    assert_eq!(packet.destination(), Ipv4Addr::new(192, 168, 0, 199));
    assert_eq!((packet.protocol(), packet.hop_limit()), (IpProtocol::UDP, 64));
    assert_eq!(packet.payload().len(), 0x73 - 20);
    assert!(packet.fragment_field().dont_fragment());
    assert_eq!(packet.fragment(), None);
    let mut again = [0; 20];
    packet.header().emit(&mut again);
    assert_eq!(again, KNOWN);
}

#[test]
fn any_one_bit_wrong_is_noticed() {
    for bit in 0..160 {
        let mut bytes = known();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let verified = Ipv4Packet::parse(&bytes).and_then(Ipv4Packet::verify);
        assert!(verified.is_err(), "bit {bit}");
    }
}

#[test]
fn every_impossible_length_is_named() {
    let with = |at: usize, byte: u8| {
        let mut bytes = known();
        bytes[at] = byte;
        Ipv4Packet::parse(&bytes).err()
    };
    assert_eq!(with(0, 0x65), Some(FormatError::Version));
    assert_eq!(with(0, 0x44), Some(FormatError::HeaderLength));
    assert_eq!(with(3, 19), Some(FormatError::Length));
    assert_eq!(with(3, 0x74), Some(FormatError::Truncated));
    assert_eq!(Ipv4Packet::parse(&KNOWN[..19]).err(), Some(FormatError::Truncated));
    assert_eq!(Ipv4Packet::parse(&KNOWN).err(), Some(FormatError::Truncated));
    assert_eq!(Ipv4Packet::parse_quoted(&KNOWN).unwrap().payload(), &[]);
    let mut long = KNOWN;
    long[0] = 0x46;
    assert_eq!(Ipv4Packet::parse_quoted(&long).err(), Some(FormatError::Truncated));
}

#[test]
fn a_last_fragment_is_one_and_its_offset_is_in_bytes() {
    let fragment = Fragment { identification: 7, offset: 1_480, more: false };
    let field = FragmentField::of(&fragment);
    assert_eq!(field, FragmentField(185));
    assert!(field.is_fragment() && !field.more() && !field.dont_fragment());
    assert_eq!(field.offset(), 1_480);
}

#[test]
fn the_last_hop_is_not_taken() {
    let mut bytes = known();
    bytes[8] = 1;
    assert_eq!(decrement_hop_limit(&mut bytes), Some(0));
    assert_eq!(decrement_hop_limit(&mut bytes), None);
}

#[test]
#[should_panic(expected = "a packet's length fits")]
fn a_packet_longer_than_its_length_field_is_a_bug() {
    let source = Ipv4Addr::LOCALHOST;
    Ipv4Header::new(source, source, IpProtocol::UDP, 65_516).emit(&mut [0; 20]);
}

proptest! {
    #[test]
    fn a_header_emitted_is_read_back_and_verifies(header in header()) {
        let mut bytes = vec![0xee; header.header_len() + usize::from(header.payload_len)];
        header.emit(&mut bytes);
        let packet = Ipv4Packet::parse(&bytes).unwrap().verify().unwrap();
        prop_assert_eq!(packet.header(), header);
        prop_assert_eq!(packet.header_len(), header.header_len());
    }

    #[test]
    fn changes_in_place_keep_the_checksum(header in header(), class in any::<u8>()) {
        let mut bytes = vec![0xee; header.header_len() + usize::from(header.payload_len)];
        header.emit(&mut bytes);
        let left = decrement_hop_limit(&mut bytes);
        prop_assert_eq!(left, header.hop_limit.checked_sub(1));
        let class = TrafficClass(class).with_ecn(Ecn::Congestion);
        set_traffic_class(&mut bytes, class);
        swap_addresses(&mut bytes);
        let packet = Ipv4Packet::parse(&bytes).unwrap().verify().unwrap();
        let hop_limit = left.unwrap_or(0);
        let (source, destination) = (header.destination, header.source);
        let expected = Ipv4Header { traffic_class: class, hop_limit, source, destination, ..header };
        prop_assert_eq!(packet.header(), expected);
    }
}
