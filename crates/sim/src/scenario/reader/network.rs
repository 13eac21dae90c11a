//! The network of a scenario: `[topology]`, or every `[[link]]`.

use toml::de::{DeTable, DeValue};

use super::{ReadResult, ScenarioReader, whole};
use crate::network::{NetworkPlan, Topology};

/// Hosts of a network at most.
const HOSTS_MAX: u32 = 1_000_000;
const KINDS: &str = "pair, dumbbell, parking-lot, star, fat-tree";

impl ScenarioReader<'_> {
    pub(super) fn network(&self, table: &DeTable<'_>) -> ReadResult<NetworkPlan> {
        match (table.get("topology"), table.get("link")) {
            (Some(_), Some(links)) => Err(self
                .fault(links, "a network is a [topology] or its [[link]]s, not both; remove one")),
            (None, None) => Err(self.fault_at(
                &(0..0),
                "there is no network; add [topology] with kind = \"dumbbell\", or a [[link]]",
            )),
            (None, Some(_)) => self.listed(table),
            (Some(value), None) => {
                let DeValue::Table(topology) = value.get_ref() else {
                    return Err(
                        self.fault(value, "'topology' is not a table; write it as [topology]")
                    );
                };
                Ok(self.topology(topology, &value.span())?.plan())
            }
        }
    }

    fn topology(&self, table: &DeTable<'_>, at: &std::ops::Range<usize>) -> ReadResult<Topology> {
        let kind_value = self.required(table, "kind", at, "\"dumbbell\"")?;
        let kind = self.text_of(kind_value, "kind")?;
        let hop = |key: &str| {
            let value = self.required(table, key, at, "\"rate=100mbit,delay=10ms\"")?;
            self.hop(value, key)
        };
        let count = |key: &str, least: u32, most: u32| {
            let value = self.required(table, key, at, "4")?;
            let count = self.read(value, key, whole::<u32>)?;
            if (least..=most).contains(&count) {
                return Ok(count);
            }
            Err(self.fault(value, format!("{key}: {count} is not between {least} and {most}")))
        };
        let keys = |keys: &[&str]| {
            self.check_keys(table, &format!("a {kind}"), &[&["kind"], keys].concat())
        };
        Ok(match kind.as_str() {
            "pair" => {
                keys(&["link"])?;
                Topology::Pair { link: hop("link")? }
            }
            "dumbbell" => {
                keys(&["pairs", "access", "bottleneck"])?;
                Topology::Dumbbell {
                    pairs: count("pairs", 1, HOSTS_MAX / 2)?,
                    access: hop("access")?,
                    bottleneck: hop("bottleneck")?,
                }
            }
            "parking-lot" => {
                keys(&["hops", "access", "bottleneck"])?;
                Topology::ParkingLot {
                    hops: count("hops", 1, 1_000)?,
                    access: hop("access")?,
                    bottleneck: hop("bottleneck")?,
                }
            }
            "star" => {
                keys(&["hosts", "link"])?;
                Topology::Star { hosts: count("hosts", 2, HOSTS_MAX)?, link: hop("link")? }
            }
            "fat-tree" => {
                keys(&["k", "link"])?;
                let k = count("k", 2, 64)?;
                if k % 2 != 0 {
                    let value = self.required(table, "k", at, "4")?;
                    return Err(
                        self.fault(value, "k: a fat tree has an even number of ports a switch")
                    );
                }
                Topology::FatTree { k, link: hop("link")? }
            }
            other => {
                return Err(self.fault(
                    kind_value,
                    format!("there is no topology '{other}'; there are: {KINDS}, or [[link]]s"),
                ));
            }
        })
    }

    fn listed(&self, table: &DeTable<'_>) -> ReadResult<NetworkPlan> {
        let mut plan = NetworkPlan::default();
        for (link, at) in self.list(table, "link")? {
            self.check_keys(link, "a link", &["between", "link"])?;
            let between = self.required(link, "between", &at, "[\"a\", \"b\"]")?;
            let wrong = || {
                self.fault(between, "'between' names two different nodes: between = [\"a\", \"b\"]")
            };
            let DeValue::Array(names) = between.get_ref() else { return Err(wrong()) };
            let names: Vec<String> =
                names.iter().map(|name| self.text_of(name, "between")).collect::<Result<_, _>>()?;
            let [from, to] = names.as_slice() else { return Err(wrong()) };
            if from == to || from.is_empty() || to.is_empty() {
                return Err(wrong());
            }
            let spec = self.required(link, "link", &at, "\"rate=100mbit,delay=10ms\"")?;
            let ends = [plan.node(from), plan.node(to)];
            plan.connect(ends, self.hop(spec, "link")?);
        }
        Ok(plan)
    }
}
