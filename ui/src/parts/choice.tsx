interface Props {
  label: string;
  value: string | number;
  options: readonly (readonly [value: string | number, words: string])[];
  onChange: (value: string) => void;
  /** In a form, the label stands above. */
  field?: boolean;
  /** The label is for those who do not see the place. */
  quiet?: boolean;
}

/** One of some. */
export function Choice({ label, value, options, onChange, field, quiet }: Props) {
  return (
    <label class={field ? "field" : "choice"}>
      <span class={quiet ? "hidden-text" : undefined}>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([each, words]) => (
          <option key={each} value={each}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}
