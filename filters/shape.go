package filters

// ShapeKind tells which function of this package has made a criterion.
type ShapeKind string

// The kinds of criteria. Other ones are functions of the user.
const (
	KindPresent ShapeKind = "Present"
	KindAbsent  ShapeKind = "Absent"
	KindEqual   ShapeKind = "Equal"
	KindAny     ShapeKind = "Any"
	KindAll     ShapeKind = "All"
	KindNone    ShapeKind = "None"
	KindNot     ShapeKind = "Not"
	KindOther   ShapeKind = "other"
)

// Shape is what a criterion is made of, for those who have to say it in another language,
// such as that of label selectors.
type Shape struct {
	Kind    ShapeKind
	Literal any         // of KindEqual: a JSON tree, which must not be changed
	Parts   []Criterion // of KindAny, KindAll, KindNone and KindNot
}

// ShapeOf tells what a criterion is made of. What a user's function wants is not known.
func ShapeOf(c Criterion) Shape {
	switch c := c.(type) {
	case presence:
		if c {
			return Shape{Kind: KindPresent}
		}
		return Shape{Kind: KindAbsent}
	case equality:
		return Shape{Kind: KindEqual, Literal: c.literal}
	case combination:
		return Shape{Kind: ShapeKind(c.name), Parts: c.criteria}
	}
	return Shape{Kind: KindOther}
}
