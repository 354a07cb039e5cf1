//! The rules of OTLP profiles: element 0 of each table is empty, every index is in range, every element is referred to,
//! no element is there twice, ids have their lengths, and times and values have one shape.
//!
//! Source: `profcheck` of open-telemetry/sig-profiling, with its optional checks; the comments of `profiles.proto`.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesDictionary};

/// The elements of a table that were referred to.
struct Table {
    name: &'static str,
    length: usize,
    seen: BTreeSet<i32>,
}

impl Table {
    /// A table whose first element is the empty one, and whose elements differ.
    fn of<T: Default + PartialEq + Debug>(name: &'static str, elements: &[T]) -> Table {
        assert_eq!(elements.first(), Some(&T::default()), "element 0 of {name}");
        let texts: BTreeSet<String> = elements.iter().map(|element| format!("{element:?}")).collect();
        assert_eq!(texts.len(), elements.len(), "an element of {name} is there twice");
        Table { name, length: elements.len(), seen: BTreeSet::from([0]) }
    }

    fn refer(&mut self, index: i32) {
        let range: Range<i32> = 0..i32::try_from(self.length).expect("a short table");
        assert!(range.contains(&index), "{}: index {index} is not in {range:?}", self.name);
        self.seen.insert(index);
    }

    fn check_complete(&self) {
        assert_eq!(self.seen.len(), self.length, "{}: elements that nothing refers to", self.name);
    }
}

/// Checks all rules.
pub fn check_otlp(request: &ExportProfilesServiceRequest) {
    let tables = request.dictionary.as_ref().expect("a dictionary");
    let mut strings = Table::of("strings", &tables.string_table);
    let mut attributes = Table::of("attributes", &tables.attribute_table);
    let mut mappings = Table::of("mappings", &tables.mapping_table);
    let mut functions = Table::of("functions", &tables.function_table);
    let mut locations = Table::of("locations", &tables.location_table);
    let mut stacks = Table::of("stacks", &tables.stack_table);
    let mut links = Table::of("links", &tables.link_table);
    assert!(!request.resource_profiles.is_empty());
    for resource in &request.resource_profiles {
        assert!(!resource.scope_profiles.is_empty());
        for scope in &resource.scope_profiles {
            assert!(!scope.profiles.is_empty());
            for profile in &scope.profiles {
                check_profile(profile, tables, &mut attributes);
                for kind in [profile.sample_type, profile.period_type].into_iter().flatten() {
                    strings.refer(kind.type_strindex);
                    strings.refer(kind.unit_strindex);
                }
                for sample in &profile.samples {
                    stacks.refer(sample.stack_index);
                    links.refer(sample.link_index);
                }
            }
        }
    }
    for stack in &tables.stack_table {
        stack.location_indices.iter().for_each(|&index| locations.refer(index));
    }
    for location in &tables.location_table {
        mappings.refer(location.mapping_index);
        check_attributes(&location.attribute_indices, tables, &mut attributes);
        for line in &location.lines {
            functions.refer(line.function_index);
            assert!(line.line >= 0 && line.column >= 0, "{line:?}");
        }
    }
    for mapping in &tables.mapping_table {
        strings.refer(mapping.filename_strindex);
        check_attributes(&mapping.attribute_indices, tables, &mut attributes);
        let range = (mapping.memory_start, mapping.memory_limit);
        assert!(range == (0, 0) || range.0 < range.1, "{mapping:?}");
    }
    for function in &tables.function_table {
        let indices = [function.name_strindex, function.system_name_strindex, function.filename_strindex];
        indices.into_iter().for_each(|index| strings.refer(index));
        assert!(function.start_line >= 0, "{function:?}");
    }
    for attribute in &tables.attribute_table {
        strings.refer(attribute.key_strindex);
        strings.refer(attribute.unit_strindex);
    }
    for link in &tables.link_table[1..] {
        assert_eq!((link.trace_id.len(), link.span_id.len()), (16, 8));
    }
    [strings, attributes, mappings, functions, locations, stacks, links]
        .iter()
        .for_each(Table::check_complete);
}

fn check_profile(profile: &Profile, tables: &ProfilesDictionary, attributes: &mut Table) {
    assert!(profile.profile_id.len() == 16 && profile.profile_id.iter().any(|&byte| byte != 0));
    assert!(profile.sample_type.is_some() && profile.period_type.is_some() && profile.period > 0);
    assert!(profile.time_unix_nano > 0);
    check_attributes(&profile.attribute_indices, tables, attributes);
    for sample in &profile.samples {
        check_attributes(&sample.attribute_indices, tables, attributes);
        assert!(sample.timestamps_unix_nano.is_empty() && sample.values.len() == 1, "values only, one each");
        assert!(sample.values[0] >= 0);
    }
}

/// Checks that no key is there twice.
fn check_attributes(indices: &[i32], tables: &ProfilesDictionary, attributes: &mut Table) {
    let mut keys = BTreeSet::new();
    for &index in indices {
        attributes.refer(index);
        let key = tables.attribute_table[index as usize].key_strindex;
        assert!(keys.insert(key), "{:?} is there twice", tables.string_table[key as usize]);
    }
}
