//! Links of the past and of the present under a name: round numbers from published sources.
//!
//! Each is a text like any other, and can be changed like any other. Rates count Ethernet's header of 14 bytes, as every
//! rate of a link does, unless `overhead=` says more. Delays are one way.

use crate::spec::LinkSpec;

/// A link under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPreset {
    /// As it is given: `geo-satellite`.
    pub name: &'static str,
    /// The link, as text.
    pub text: &'static str,
    /// What it is, in a few words.
    pub summary: &'static str,
    /// Where its numbers are from.
    pub source: &'static str,
}

impl LinkPreset {
    /// The preset of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// The link.
    pub fn spec(&self) -> LinkSpec {
        self.text.parse().expect("every preset is a link; a test makes each")
    }
}

/// Every preset, from the slowest on.
pub const PRESETS: [LinkPreset; 17] = [
    LinkPreset {
        name: "1200-baud",
        text: "rate=1200bit,delay=10ms,limit=8packets",
        summary: "telephone modem, 1980",
        source: "ITU-T V.22: 1200 bit/s in both directions; delay and queue chosen",
    },
    LinkPreset {
        name: "9600-baud",
        text: "rate=9600bit,delay=20ms,limit=16packets",
        summary: "telephone modem, 1984",
        source: "ITU-T V.32: 9600 bit/s in both directions; RFC 1144 on such links; delay and queue chosen",
    },
    LinkPreset {
        name: "dialup",
        text: "rate=33600bit,delay=50ms,limit=16packets|rate=53300bit,delay=50ms,limit=32packets",
        summary: "the last modems before broadband",
        source: "ITU-T V.90: 33.6 kbit/s up, 56 down, of which regulators let 53.3 be used; RFC 3150; delay and queue chosen",
    },
    LinkPreset {
        name: "arpanet",
        text: "rate=50kbit,delay=5ms,limit=8packets;rate=50kbit,delay=10ms,limit=8packets;rate=50kbit,delay=5ms,limit=8packets",
        summary: "three lines of the ARPANET with two IMPs between them",
        source: "Heart et al. 1970: lines of 50 kbit/s; Kleinrock & Naylor 1974: 3.3 hops on the mean path; McQuillan et al. 1972: 8 buffers to a line; delays chosen for the breadth of a continent",
    },
    LinkPreset {
        name: "ethernet-3m",
        text: "rate=2940kbit,overhead=3,delay=5us,limit=16packets",
        summary: "Ethernet of 1973",
        source: "Metcalfe & Boggs 1976: 2.94 Mbit/s, a kilometre of cable, a 16-bit checksum and a start bit; queue chosen",
    },
    LinkPreset {
        name: "ethernet-10m",
        text: "rate=10mbit,overhead=24,delay=25us,limit=64packets",
        summary: "Ethernet of 1983 at its greatest length",
        source: "IEEE 802.3: 10 Mbit/s, a slot of 51.2 us there and back, 24 bytes of preamble, check and gap; queue chosen",
    },
    LinkPreset {
        name: "lan-100m",
        text: "rate=100mbit,overhead=24,delay=30us,limit=128packets",
        summary: "switched office network",
        source: "IEEE 802.3u: 100 Mbit/s, 24 bytes of preamble, check and gap; delay of two switches and queue chosen",
    },
    LinkPreset {
        name: "lan-1g",
        text: "rate=1gbit,overhead=24,delay=20us,limit=256packets",
        summary: "switched network to a desk today",
        source: "IEEE 802.3ab: 1 Gbit/s, 24 bytes of preamble, check and gap; delay of two switches and queue chosen",
    },
    LinkPreset {
        name: "lan-10g",
        text: "rate=10gbit,overhead=24,delay=10us,limit=512packets",
        summary: "a rack of servers",
        source: "IEEE 802.3ae: 10 Gbit/s, 24 bytes of preamble, check and gap; delay of two switches and queue chosen",
    },
    LinkPreset {
        name: "dsl",
        text: "rate=1mbit,delay=10ms,limit=64packets,mtu=1492|rate=16mbit,delay=10ms,limit=128packets,mtu=1492",
        summary: "telephone line to a house",
        source: "ITU-T G.992.5 (ADSL2+), which reaches 24 Mbit/s down and 1.4 up on a short line; its interleaving delays by up to 20 ms; RFC 2516 §7: an MTU of 1492; rates, delay and queue chosen",
    },
    LinkPreset {
        name: "cable",
        text: "rate=20mbit,delay=8ms,queue=pie,target=10ms,limit=512packets|rate=200mbit,delay=8ms,limit=1bdp",
        summary: "television cable to a house",
        source: "CableLabs DOCSIS 3.1 MULPI; RFC 8034 §4: PIE upstream with a target of 10 ms; rates and delay chosen",
    },
    LinkPreset {
        name: "4g",
        text: "rate=10mbit,delay=25ms,jitter=8ms,limit=256packets|rate=40mbit,delay=25ms,jitter=8ms,limit=1000packets",
        summary: "mobile phone, 2012",
        source: "3GPP TS 36.306, category 3: at most 100 Mbit/s down, 50 up, in one cell; deep queues after Jiang et al. 2012; what one user gets, delay and jitter chosen",
    },
    LinkPreset {
        name: "5g",
        text: "rate=50mbit,delay=10ms,jitter=4ms,limit=512packets|rate=100mbit,delay=10ms,jitter=4ms,limit=1000packets",
        summary: "mobile phone, 2020",
        source: "ITU-R M.2410 §4.3: 100 Mbit/s down and 50 up for one user; §4.7.1: 4 ms in the radio alone; delay, jitter and queue chosen",
    },
    LinkPreset {
        name: "wifi",
        text: "rate=60mbit,loss=0.1%,delay=1ms..5ms,queue=fq-codel",
        summary: "shared wireless network in a flat",
        source: "IEEE 802.11n: 65 Mbit/s for one stream of 20 MHz, before its own overhead; queue after Høiland-Jørgensen et al. 2017; delay and what is lost after retries chosen",
    },
    LinkPreset {
        name: "geo-satellite",
        text: "rate=2mbit,delay=270ms,bit-errors=1e-8,limit=1bdp|rate=20mbit,delay=270ms,bit-errors=1e-8,limit=1bdp",
        summary: "geostationary satellite",
        source: "RFC 2488 §2: 239.6 to 279 ms one way by the place on Earth, bit errors of 1e-7 or rarer; rates chosen",
    },
    LinkPreset {
        name: "transatlantic",
        text: "rate=1gbit,delay=35ms,limit=1bdp",
        summary: "a good path between two continents",
        source: "ITU-T G.652 fibre: 4.9 us a kilometre, so 27 ms for the 5,570 km from London to New York, and more for the way that cables take; rate chosen",
    },
    LinkPreset {
        name: "lossy",
        text: "rate=10mbit,delay=25ms,gilbert-elliott=0.5%/25%,limit=1bdp",
        summary: "a path that loses frames in bursts",
        source: "ITU-T G.1050 (TIA-921) for the form, a chain of two states; parameters chosen: 2 % lost, four frames to a burst",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_link_and_is_found_by_its_name() {
        for preset in &PRESETS {
            let spec = preset.spec();
            assert_eq!(LinkPreset::named(preset.name), Some(preset));
            assert_eq!(preset.name.parse(), Ok(spec.clone()), "a name stands for its text");
            assert_eq!(spec.to_string().parse(), Ok(spec), "{}", preset.name);
        }
    }
}
