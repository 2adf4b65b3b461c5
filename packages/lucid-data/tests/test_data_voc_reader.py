import pytest

from lucid_data import open_catalog


def thing(x1="10", y1="5", x2="30", y2="25", name="cat", more=""):
    corners = f"<xmin>{x1}</xmin><ymin>{y1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax>"
    return f"<object><name>{name}</name>{more}<bndbox>{corners}</bndbox></object>"


def test_corners_are_edges_and_names_are_sorted(voc_tree):
    catalog = open_catalog(voc_tree(thing(name="dog") + thing(name=" cat ")))
    assert catalog.class_names == ("cat", "dog")
    assert catalog.targets(0).labels.tolist() == [1, 0]
    assert catalog.targets(0).boxes[0].tolist() == [10, 5, 30, 25]


def test_fractions_are_kept_and_swapped_corners_put_right_and_counted(voc_tree):
    catalog = open_catalog(voc_tree(thing(x1="10.5") + thing(x1="30", x2="10")))
    assert catalog.targets(0).boxes.tolist() == [[10.5, 5, 30, 25], [10, 5, 30, 25]]
    assert catalog.dropped == {"swapped corners (put right)": 1}


def test_the_difficult_flag_is_kept(voc_tree):
    catalog = open_catalog(voc_tree(thing(more="<difficult>1</difficult>") + thing()))
    assert catalog.targets(0).difficult.tolist() == [True, False]


def test_a_point_sized_box_is_dropped_and_counted(voc_tree, shared_data):
    catalog = open_catalog(voc_tree(thing() + thing(x2="10", y2="5")))
    assert len(catalog.targets(0)) == 1
    assert catalog.dropped == {"box under 1 px": 1}
    assert open_catalog(shared_data / "bccd", "trainval").dropped == {"box under 1 px": 2}


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        (thing(x1="a"), r"object 1 \(cat\): bndbox needs"),
        (thing().replace("<xmin>10</xmin>", ""), "bndbox needs"),
        (thing(x1="inf"), "not finite"),
        (thing(name=""), "no <name>"),
        ("<object>", "not well-formed"),
    ],
)
def test_a_defective_file_is_named_with_the_object(voc_tree, inner, words):
    with pytest.raises(ValueError, match=rf"p\.xml.*{words}"):
        open_catalog(voc_tree(inner))


def test_entities_are_refused(voc_tree):
    root = voc_tree(thing())
    path = root / "Annotations" / "p.xml"
    path.write_text('<!DOCTYPE a [<!ENTITY e "x">]>' + path.read_text().replace("cat", "&e;"))
    with pytest.raises(ValueError, match="entities"):
        open_catalog(root)


@pytest.mark.parametrize(
    "size",
    [
        "",
        "<size><width>0</width><height>0</height></size>",
        "<size><width>640</width><height>480</height></size>",
    ],
)
def test_the_picture_outranks_an_absent_or_wrong_size(voc_tree, size):
    assert open_catalog(voc_tree(thing(), size=size)).sizes.tolist() == [[40, 100]]


def test_a_listed_name_without_a_file_is_an_error(voc_tree):
    root = voc_tree(thing())
    (root / "ImageSets" / "Main" / "train.txt").write_text("p\nq\n")
    with pytest.raises(FileNotFoundError, match="'q'"):
        open_catalog(root)


def test_the_classes_are_those_of_the_whole_tree(voc_tree, picture):
    root = voc_tree(thing(name="dog"))
    picture(root / "JPEGImages" / "q.png")
    (root / "Annotations" / "q.xml").write_text(f"<annotation>{thing(name='ape')}</annotation>")
    assert open_catalog(root).class_names == ("ape", "dog")


def test_other_tasks_are_refused(voc_tree):
    with pytest.raises(ValueError, match="boxes only"):
        open_catalog(voc_tree(thing()), task="pose")
