// A choice with a label, and the usual one: of an application.

interface ChoiceProps {
  label: string;
  value: string;
  options: { value: string; label: string }[];
  onChange: (value: string) => void;
  isDisabled?: boolean;
}

export function Choice({ label, value, options, onChange, isDisabled }: ChoiceProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <select value={value} disabled={isDisabled ?? false} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option.value} value={option.value} selected={option.value === value}>
            {option.label}
          </option>
        ))}
      </select>
    </label>
  );
}
